"""A shop's tables as they are after twelve migrations, and the migrations: each a way up and a way down."""

from __future__ import annotations

from collections.abc import Callable

from alembic import op

import sqlalchemy as sa

CONVENTION = {
    "pk": "%(table_name)s_pkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "ck": "%(table_name)s_%(constraint_name)s",
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
}

metadata = sa.MetaData(naming_convention=CONVENTION)

customer = sa.Table(
    "customer",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("full_name", sa.String(200), nullable=False),
    sa.Column("email", sa.Text, unique=True),
    sa.Column("credit", sa.Numeric(12, 2), nullable=False, server_default="0"),
    sa.Column("since", sa.DateTime, nullable=False, server_default=sa.func.now()),
    sa.Column("is_active", sa.Boolean, nullable=False, server_default=sa.true(), comment="may order"),
    sa.Column("town_id", sa.ForeignKey("town.id", ondelete="SET NULL")),
    sa.CheckConstraint("credit >= 0", name="credit_is_there"),
    comment="who buys",
)
town = sa.Table(
    "town",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True, start=100, increment=10), primary_key=True),
    sa.Column("name", sa.String(60), nullable=False, unique=True),
)
article = sa.Table(
    "article",
    metadata,
    sa.Column("shop", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.String(20), primary_key=True),
    sa.Column("price", sa.Numeric(10, 2), sa.CheckConstraint("price > 0", name="price_is_more")),
    sa.Column("weight", sa.Float, server_default=sa.text("1.5")),
    sa.Column("note", sa.Text, server_default="it's new"),
)
line = sa.Table(
    "order_line",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("customer_id", sa.ForeignKey("customer.id", ondelete="CASCADE", onupdate="CASCADE"), nullable=False),
    sa.Column("shop", sa.Integer),
    sa.Column("article", sa.String(20)),
    sa.Column("amount", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("ordered", sa.Date, server_default=sa.text("current_date")),
    sa.Column("state", sa.Enum("open", "sent", "paid", name="states", native_enum=False), nullable=False),
    sa.ForeignKeyConstraint(
        ["shop", "article"],
        ["article.shop", "article.number"],
        deferrable=True,
        initially="DEFERRED",
        ondelete="SET NULL (article)",
    ),
)
sa.Index("order_line_by_day", line.c.ordered.desc(), line.c.customer_id, gmdb_include=["amount"])
sa.Index("order_line_one_open", line.c.customer_id, unique=True, gmdb_where=line.c.state == "open")
sa.Index("order_line_state", line.c.state, gmdb_using="hash")


def _first_tables() -> None:
    op.create_table(
        "client",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(20), nullable=False),
        sa.Column("town", sa.String(60)),
        sa.Column("credit", sa.Integer),
    )
    op.bulk_insert(
        sa.table("client", sa.column("name", sa.Text), sa.column("town", sa.Text), sa.column("credit", sa.Integer)),
        [{"name": f"c{n}", "town": f"t{n % 3}" if n % 4 else None, "credit": n} for n in range(40)],
    )


def _orders() -> None:
    op.create_table(
        "order_line",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("client_id", sa.Integer, sa.ForeignKey("client.id", name="line_client"), nullable=False),
        sa.Column("amount", sa.Integer),
    )
    op.execute("insert into order_line (client_id, amount) select id, id * 2 from client")


def _rename() -> None:
    op.rename_table("client", "customer")
    op.alter_column("customer", "name", new_column_name="full_name")
    op.alter_column("order_line", "client_id", new_column_name="customer_id")


def _rename_back() -> None:
    op.alter_column("order_line", "customer_id", new_column_name="client_id")
    op.alter_column("customer", "full_name", new_column_name="name")
    op.rename_table("customer", "client")


def _types() -> None:
    op.alter_column("customer", "full_name", type_=sa.String(200), existing_type=sa.String(20))
    op.alter_column("customer", "credit", type_=sa.Numeric(12, 2), gmdb_using="credit / 100.0")
    op.alter_column("order_line", "amount", type_=sa.BigInteger())
    op.alter_column("order_line", "id", type_=sa.BigInteger())


def _types_back() -> None:
    op.alter_column("order_line", "id", type_=sa.Integer())
    op.alter_column("order_line", "amount", type_=sa.Integer())
    op.alter_column("customer", "credit", type_=sa.Integer(), gmdb_using="(credit * 100)::int")
    op.alter_column("customer", "full_name", type_=sa.String(20), existing_type=sa.String(200))


def _columns() -> None:
    op.add_column("customer", sa.Column("email", sa.Text))
    op.add_column("customer", sa.Column("since", sa.DateTime, nullable=False, server_default=sa.func.now()))
    active = sa.Column("is_active", sa.Boolean, nullable=False, server_default=sa.true(), comment="may order")
    op.add_column("customer", active)
    op.execute("update customer set email = full_name || '@example.org' where id % 2 = 0")
    op.create_unique_constraint("customer_email_key", "customer", ["email"])


def _columns_back() -> None:
    op.drop_constraint("customer_email_key", "customer", type_="unique")
    for name in ("is_active", "since", "email"):
        op.drop_column("customer", name)


def _defaults() -> None:
    op.alter_column("customer", "credit", nullable=False, server_default="0")
    op.alter_column("order_line", "amount", nullable=False, server_default="1")
    op.create_check_constraint("credit_is_there", "customer", "credit >= 0")


def _defaults_back() -> None:
    op.drop_constraint("credit_is_there", "customer", type_="check")
    op.alter_column("order_line", "amount", nullable=True, server_default=None)
    op.alter_column("customer", "credit", nullable=True, server_default=None)


def _articles() -> None:
    op.create_table(
        "article",
        sa.Column("shop", sa.Integer, autoincrement=False),
        sa.Column("number", sa.String(20)),
        sa.Column("price", sa.Numeric(10, 2), sa.CheckConstraint("price > 0", name="price_is_more")),
        sa.Column("weight", sa.Float, server_default=sa.text("1.5")),
        sa.PrimaryKeyConstraint("shop", "number", name="article_pkey"),
    )
    op.execute("insert into article (shop, number, price) values (1, 'a', 1.25), (1, 'b', 2)")


def _lines_of_articles() -> None:
    with op.batch_alter_table("order_line") as batch:  # one statement a change
        batch.add_column(sa.Column("shop", sa.Integer))
        batch.add_column(sa.Column("article", sa.String(20)))
        batch.add_column(sa.Column("ordered", sa.Date, server_default=sa.text("current_date")))
    op.execute("update order_line set shop = 1, article = 'a' where id % 3 = 0")
    op.create_foreign_key(
        "order_line_shop_article_fkey",
        "order_line",
        "article",
        ["shop", "article"],
        ["shop", "number"],
        deferrable=True,
        initially="DEFERRED",
        ondelete="SET NULL (article)",
    )


def _lines_of_articles_back() -> None:
    op.drop_constraint("order_line_shop_article_fkey", "order_line", type_="foreignkey")
    with op.batch_alter_table("order_line", recreate="always") as batch:  # by a copy of the table
        batch.drop_column("ordered")
        batch.drop_column("article")
        batch.drop_column("shop")


def _states() -> None:
    states = sa.Enum("open", "sent", "paid", name="states", native_enum=False)
    op.add_column("order_line", sa.Column("state", states, nullable=False, server_default="sent"))
    op.alter_column("order_line", "state", server_default=None)
    op.drop_constraint("line_client", "order_line", type_="foreignkey")
    op.create_foreign_key(
        None, "order_line", "customer", ["customer_id"], ["id"], ondelete="CASCADE", onupdate="CASCADE"
    )


def _states_back() -> None:
    op.drop_constraint("order_line_customer_id_fkey", "order_line", type_="foreignkey")
    op.create_foreign_key("line_client", "order_line", "customer", ["customer_id"], ["id"])
    op.drop_column("order_line", "state")


def _indexes() -> None:
    op.create_index(
        "order_line_by_day", "order_line", [sa.text("ordered desc"), "customer_id"], gmdb_include=["amount"]
    )
    open_ones = sa.column("state") == "open"
    op.create_index("order_line_one_open", "order_line", ["customer_id"], unique=True, gmdb_where=open_ones)
    op.create_index("order_line_state", "order_line", ["state"], gmdb_using="hash")


def _indexes_back() -> None:
    for name in ("order_line_state", "order_line_one_open", "order_line_by_day"):
        op.drop_index(name, "order_line")


def _towns() -> None:
    op.create_table(
        "town",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True, start=100, increment=10), primary_key=True),
        sa.Column("name", sa.String(60), nullable=False, unique=True),
    )
    op.execute("insert into town (name) select distinct town from customer where town is not null order by town")
    op.add_column("customer", sa.Column("town_id", sa.BigInteger))
    op.execute("update customer set town_id = town.id from town where town.name = customer.town")
    op.create_foreign_key(None, "customer", "town", ["town_id"], ["id"], ondelete="SET NULL")
    op.drop_column("customer", "town")


def _towns_back() -> None:
    op.add_column("customer", sa.Column("town", sa.String(60)))
    op.execute("update customer set town = town.name from town where town.id = customer.town_id")
    op.drop_constraint("customer_town_id_fkey", "customer", type_="foreignkey")
    op.drop_column("customer", "town_id")
    op.drop_table("town")


def _comments() -> None:
    op.create_table_comment("customer", "who buys")
    op.add_column("article", sa.Column("note", sa.Text, server_default="it's new"))


def _comments_back() -> None:
    op.drop_column("article", "note")
    op.drop_table_comment("customer")


STEPS: list[tuple[Callable[[], None], Callable[[], None]]] = [
    (_first_tables, lambda: op.drop_table("client")),
    (_orders, lambda: op.drop_table("order_line")),
    (_rename, _rename_back),
    (_types, _types_back),
    (_columns, _columns_back),
    (_defaults, _defaults_back),
    (_articles, lambda: op.drop_table("article")),
    (_lines_of_articles, _lines_of_articles_back),
    (_states, _states_back),
    (_indexes, _indexes_back),
    (_towns, _towns_back),
    (_comments, _comments_back),
]
