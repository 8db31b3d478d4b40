-- What Open asks of the server and the database. One row. The own database can always be seen
-- in sys.databases, and is found by its name there: on Azure SQL DB_ID() counts otherwise.
SELECT CAST(SERVERPROPERTY('EngineEdition') AS int) AS edition,
    CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)) AS product,
    @@VERSION AS version,
    CAST(d.compatibility_level AS int) AS compatibility,
    CAST(d.delayed_durability AS int) AS delayed_durability,
    CAST(CASE WHEN CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)) = N'READ_ONLY' THEN 1 ELSE 0 END AS bit) AS read_only,
    @@OPTIONS AS options
FROM sys.databases AS d
WHERE d.name = DB_NAME()
