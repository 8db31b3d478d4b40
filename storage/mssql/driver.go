package mssql

import (
	_ "github.com/microsoft/go-mssqldb" // the driver
)
