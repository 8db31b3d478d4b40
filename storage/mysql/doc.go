// Package mysql is the backend for MySQL and MariaDB. The order of the steps of an
// operation is in storage/rowlock; here are the statements, the connection and its errors.
package mysql
