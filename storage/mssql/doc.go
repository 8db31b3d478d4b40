// Package mssql is the backend for SQL Server and Azure SQL. The order of the steps of an
// operation is in storage/rowlock; here are the statements, the connection and its errors.
package mssql
