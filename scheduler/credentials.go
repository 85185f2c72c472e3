package scheduler

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Credentials is what attempts prove who they are with. Store has it, and may answer from what it read up to 10 seconds
// ago. Errors are *AuthError where trying again soon would not help; all others mean that the database is not to be asked.
type Credentials interface {
	// SigningKeys returns what a tenant's callbacks are signed with: never none.
	SigningKeys(ctx context.Context, tenant int32) ([]SigningKey, error)
	// NamedSecret returns the secret that a tenant has under a name.
	NamedSecret(ctx context.Context, tenant int32, name string) (Secret, error)
	// JobSecret returns a value that was written into a definition of a job.
	JobSecret(ctx context.Context, tenant int32, job, id uuid.UUID) (Secret, error)
}

// Secret is a secret that was opened.
type Secret struct {
	Value string
	Revision
}

// Revision names one value of one secret: what was made of another is not for this one.
type Revision struct {
	ID      uuid.UUID
	Version int32
}

// String returns the mask.
func (s Secret) String() string { return Mask }

// GoString returns the mask.
func (s Secret) GoString() string { return Mask }

// AuthError is why an attempt fails with reason auth. Its text is for people and holds no secret.
type AuthError struct{ Why string }

func (e *AuthError) Error() string { return e.Why }

func authErrorf(format string, args ...any) error { return &AuthError{fmt.Sprintf(format, args...)} }
