package scheduler

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// Credentials reads the secrets that attempts authenticate with. Package store implements it, and may answer from what
// it read up to 10 seconds ago. An *AuthError means that trying again soon would not help. Any other error means that
// the database cannot be asked.
type Credentials interface {
	// SigningKeys returns the keys that a tenant's callbacks are signed with. There is always at least one.
	SigningKeys(ctx context.Context, tenant int32) ([]SigningKey, error)
	// NamedSecret returns a tenant's secret by its name.
	NamedSecret(ctx context.Context, tenant int32, name string) (Secret, error)
	// JobSecret returns a secret that was written into a job's definition.
	JobSecret(ctx context.Context, tenant int32, job, id uuid.UUID) (Secret, error)
}

// Secret is a decrypted secret.
type Secret struct {
	Value string
	Revision
}

// Revision names one value of one secret. Whatever was derived from another revision does not fit this one.
type Revision struct {
	ID      uuid.UUID
	Version int32
}

// String returns the mask.
func (s Secret) String() string { return domain.Mask }

// GoString returns the mask.
func (s Secret) GoString() string { return domain.Mask }

// AuthError is why an attempt fails with reason auth. Its text is for people and contains no secret.
type AuthError struct{ Why string }

func (e *AuthError) Error() string { return e.Why }

func authErrorf(format string, args ...any) error { return &AuthError{fmt.Sprintf(format, args...)} }
