"""The binder: sqlglot's tree becomes the bound tree, or an error that names its place."""
