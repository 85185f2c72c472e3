package command

import (
	"context"
	"fmt"
	"log/slog"

	"punctual/internal/server"
)

// Secrets encrypts all secrets with a new data key.
type Secrets struct {
	Rotate rotate `cmd:"" help:"Encrypt all secrets with a new data key, and drop the old one. Replicas keep running; it may be interrupted and started again."`
}

type rotate struct {
	database
	masterKey
	NewMasterKeyFile string `type:"path" placeholder:"FILE" help:"Encrypt the data keys with the first key of this file from now on. Before: give every replica a file with both keys. After: give every replica a file with only the new key."`
}

func (c *rotate) Run(ctx context.Context, log *slog.Logger) error {
	config := server.RotateConfig{DatabaseURL: c.DatabaseURL, Log: log}
	var err error
	if config.Master, err = c.read(); err != nil {
		return err
	}
	if c.NewMasterKeyFile != "" {
		if config.NewMaster, err = (masterKey{c.NewMasterKeyFile}).read(); err != nil {
			return fmt.Errorf("--new-master-key-file: %w", err)
		}
	}
	return naming(server.Rotate(ctx, config))
}
