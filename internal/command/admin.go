package command

import (
	"context"
	"log/slog"
	"os/user"

	"punctual/store"
	"punctual/store/audit"
)

// administer runs work on the database, on behalf of the logged-in user.
func (d database) administer(ctx context.Context, work func(context.Context, *store.Store) error) error {
	options := d.on(store.Options{MaxConns: 2, Log: slog.New(slog.DiscardHandler)})
	return naming(onDatabase(ctx, options, func(db *store.Store) error {
		return work(audit.WithActor(ctx, audit.Actor{Kind: audit.Command, Name: login()}), db)
	}))
}

// onDatabase runs work on a database whose schema fits.
func onDatabase(ctx context.Context, options store.Options, work func(*store.Store) error) error {
	db, err := store.Open(ctx, options)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	return work(db)
}

// login returns the name of the operating system's user.
func login() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
