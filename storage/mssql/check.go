package mssql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/queuebox/queuebox/storage"
)

// server is what a database says of itself.
type server struct {
	edition       int    // SERVERPROPERTY('EngineEdition')
	product       string // such as 15.0.4188.2
	version       string // @@VERSION
	compatibility int
	delayed       int // delayed_durability: 0 disabled, 1 allowed, 2 forced
	readOnly      bool
	options       int // @@OPTIONS
}

// The values of EngineEdition that are Azure SQL, always of the newest version, whatever
// number ProductVersion has there.
const (
	editionAzureDatabase = 5
	editionAzureManaged  = 8
	editionFabric        = 12
)

const (
	// floorVersion is SQL Server 2019, which brought UTF-8 collations and
	// OPTIMIZE_FOR_SEQUENTIAL_KEY.
	floorVersion = 15
	// floorCompatibility is that of OPENJSON.
	floorCompatibility = 130
	delayedForced      = 2
)

// The bits of @@OPTIONS that a session needs to write to a table with a filtered index, and
// those that it must not have. The driver asks for them as ODBC does; "user options" of the
// server can change them.
const (
	optionsNeeded = 8 | 16 | 32 | 256 | 4096 // ANSI_WARNINGS, ANSI_PADDING, ANSI_NULLS, QUOTED_IDENTIFIER, CONCAT_NULL_YIELDS_NULL
	optionsBad    = 2 | 8192                 // IMPLICIT_TRANSACTIONS, NUMERIC_ROUNDABORT
)

// look asks a database about itself.
func look(ctx context.Context, db *sql.DB) (server, error) {
	var s server
	text, err := checks.ReadFile("checks/server.sql")
	if err != nil {
		return s, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close() }()
	err = single(ctx, conn, string(text), &s.edition, &s.product, &s.version, &s.compatibility, &s.delayed, &s.readOnly, &s.options)
	return s, err
}

// judgement is what follows from the settings of a database that can be worked with.
type judgement struct {
	// unsafe names the setting by which the database may lose what it acknowledged (D9).
	unsafe     string
	durability string
	// foreign: this is not Microsoft's SQL Server.
	foreign bool
}

// judge refuses what would break a promise. READ_COMMITTED_SNAPSHOT may be on or off: the
// statements say by hints what they mean. A database that takes no writes right now is
// unavailable: a failover may make it the one that does.
func judge(s server) (judgement, error) {
	var j judgement
	if !strings.HasPrefix(s.version, "Microsoft") {
		j.foreign = true
	} else if err := s.floor(); err != nil {
		return j, err
	}
	if s.compatibility < floorCompatibility {
		return j, fmt.Errorf("the compatibility level of the database is %d, want at least %d: ALTER DATABASE … SET COMPATIBILITY_LEVEL = 150",
			s.compatibility, floorCompatibility)
	}
	if s.readOnly {
		return j, fmt.Errorf("%w: the database takes no writes (READ_ONLY): is it a secondary replica?", storage.ErrUnavailable)
	}
	if s.options&optionsNeeded != optionsNeeded || s.options&optionsBad != 0 {
		return j, fmt.Errorf("the options of a session are %d: the server option 'user options' has to leave ANSI_WARNINGS, ANSI_PADDING, "+
			"ANSI_NULLS, QUOTED_IDENTIFIER and CONCAT_NULL_YIELDS_NULL on, IMPLICIT_TRANSACTIONS and NUMERIC_ROUNDABORT off", s.options)
	}
	j.durability = "durable: an acknowledged write survives a crash of the database and a power cut (delayed durability is not forced)"
	if s.delayed == delayedForced {
		j.unsafe = "DELAYED_DURABILITY is FORCED"
		j.durability = "UNSAFE: an acknowledged write may be lost (" + j.unsafe + ")"
	}
	return j, nil
}

// floor refuses a version that lacks what the statements need.
func (s server) floor() error {
	switch s.edition {
	case editionAzureDatabase, editionAzureManaged, editionFabric:
		return nil
	}
	major, _, _ := strings.Cut(s.product, ".")
	if n, err := strconv.Atoi(major); err != nil || n < floorVersion {
		return fmt.Errorf("the server is SQL Server version %s, want %d (SQL Server 2019) or later", s.product, floorVersion)
	}
	return nil
}
