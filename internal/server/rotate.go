package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"punctual/store"
	"punctual/store/vault"
)

// RotateConfig says which database's secrets to encrypt anew.
type RotateConfig struct {
	DatabaseURL string
	Master      *vault.Master // decrypts the data keys
	NewMaster   *vault.Master // encrypts them from now on; nil: Master does
	Log         *slog.Logger
}

// Rotate encrypts all secrets with a new data key.
func Rotate(ctx context.Context, c RotateConfig) error {
	db, err := store.Open(ctx, store.Options{DatabaseURL: c.DatabaseURL, MaxConns: 4, Log: c.Log, Master: c.Master})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	done, err := db.RotateSecrets(ctx, c.NewMaster)
	if err != nil {
		return fmt.Errorf("secrets rotate: %w", err)
	}
	c.Log.Info("secrets rotated", "data_key", done.Key, "encrypted_anew", done.Values, "keys_dropped", done.Dropped)
	return nil
}

// devMaster returns the master key in a directory of `punctual dev`. The first start creates the key.
func devMaster(dir string) (*vault.Master, error) {
	path := filepath.Join(dir, "master.key")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(vault.NewMasterKey() + "\n")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("--dir: the master key: %w", err)
	}
	master, err := vault.ParseMaster(string(text))
	if err != nil {
		return nil, fmt.Errorf("--dir: %s: %w", path, err)
	}
	return master, nil
}
