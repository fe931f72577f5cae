"""Chapters about Spark: it reads one instant while others write, and follows every change."""

from __future__ import annotations

from gmdb.cli.demo.bank import ACCOUNTS, TOTAL, clerks_at_work
from gmdb.cli.demo.reference import SUM, TABLE
from gmdb.cli.demo.steps import COPY_NAME, Story

PARTITION_SIZE = "1MiB"


def read_beside_writers(story: Story) -> None:
    import gmdb

    spark = story.spark()
    with gmdb.connect(story.database), clerks_at_work(story.database) as moves:
        with story.step("read the table with Spark") as notes:
            frame = spark.read.format("gmdb").option("table", TABLE).option("maxPartitionBytes", PARTITION_SIZE)
            rows, added = frame.load(str(story.database.absolute())).selectExpr("count(*)", "sum(i)").first()
            notes.append(f"partitions of {PARTITION_SIZE}; starts the Python workers")
        before = sum(moves)
        with story.step("read the accounts with Spark, three times") as notes:
            accounts = spark.read.format("gmdb").option("table", "accounts")
            sums = [
                int(accounts.load(str(story.database.absolute())).selectExpr("sum(balance)").first()[0])
                for _ in range(3)
            ]
            notes.append(f"{sum(moves) - before:,} transfers were committed meanwhile")
    story.expect("rows, by Spark", 150_002, rows)
    story.expect("sum(i), by Spark", SUM, added)
    for number, found in enumerate(sums, 1):
        story.expect(f"balances, by Spark beside writers ({number})", TOTAL, found)


def stream_changes(story: Story) -> None:
    """Follow the accounts into a second database: a snapshot first, then every change since, each once."""
    import gmdb
    from gmdb.spark import read_changes

    spark = story.spark()
    copy = story.folder / COPY_NAME
    with gmdb.connect(copy) as db:
        db.cursor().execute("create table accounts (id int primary key, owner varchar(20), balance int not null)")
    with gmdb.connect(story.database) as db:
        for when in ("first the rows", "then the changes"):
            with clerks_at_work(story.database) as moves:
                changes = read_changes(spark, str(story.database.absolute()), "accounts", reader="demo")
                with story.step(f"stream the accounts into a copy, {when}") as notes:
                    writer = changes.writeStream.format("gmdb").option("table", "accounts").option("apply", "changes")
                    writer = writer.option("checkpointLocation", str(story.folder / "checkpoints"))
                    writer.trigger(availableNow=True).start(str(copy.absolute())).awaitTermination()
                notes.append(f"{sum(moves):,} transfers were committed meanwhile")
        with story.step("and the last of them, with nobody at work"):
            writer.trigger(availableNow=True).start(str(copy.absolute())).awaitTermination()
        mine: dict[int, int] = dict(db.cursor().execute("select id, balance from accounts").fetchall())
    with gmdb.connect(copy, read_only=True) as db:
        theirs: dict[int, int] = dict(db.cursor().execute("select id, balance from accounts").fetchall())
    story.expect("accounts of the copy that are as in the source", ACCOUNTS, len(mine.items() & theirs.items()))
