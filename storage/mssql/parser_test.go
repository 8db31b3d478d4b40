package mssql

import (
	_ "github.com/sqlc-dev/teesql/parser" // the parser of the statements
)
