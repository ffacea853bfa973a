"""What commands show: views, tables, progress and text."""
