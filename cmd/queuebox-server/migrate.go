package main

import (
	"errors"
	"fmt"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/storage/backends"
)

type migrateCmd struct {
	config.ConfigOption
	config.StorageOptions
	config.LogOptions
}

// Run brings the schema up to date and says what it did.
func (c *migrateCmd) Run(a *app) error {
	if err := a.loader.Finish(&c.StorageOptions, nil); err != nil {
		return usageError{err}
	}
	if err := checkStorage(c.Storage, ""); err != nil {
		return usageError{err}
	}
	logger := newLogger(a.stderr, c.LogOptions)
	ctx, stop := untilSignal(logger)
	defer stop()
	result, err := backends.Migrate(ctx, c.Storage, backends.Options{
		AllowUnsafeDurability: c.AllowUnsafeDurability,
		Migrate:               true,
		Logger:                logger,
	})
	if err != nil && ctx.Err() != nil {
		return errors.New("migrate was stopped; run it again, it goes on where it ended")
	}
	if err != nil {
		return explainStorage(c.Storage, "a schema only moves forward: use the build that made it", err)
	}
	if result.From == result.To {
		_, err = fmt.Fprintf(a.stdout, "%s: schema version %d, nothing to do\n", config.MaskURL(c.Storage), result.To)
	} else {
		_, err = fmt.Fprintf(a.stdout, "%s: schema version %d -> %d\n", config.MaskURL(c.Storage), result.From, result.To)
	}
	return err
}
