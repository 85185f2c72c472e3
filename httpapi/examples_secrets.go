package httpapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/store/secrets"
)

var (
	exampleSecretInput = json.RawMessage(`{"value": "s3cr3t", "description": "of the billing team"}`)

	exampleSecret = secrets.Secret{
		Name: "billing-token", Description: "of the billing team", Version: 2,
		CreatedAt: time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC), UpdatedAt: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	}

	exampleSigningSecret = secrets.SigningSecret{
		ID: uuid.MustParse("019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e"), CreatedAt: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	}

	exampleNewSigningSecret = NewSigningSecret{exampleSigningSecret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="}
)
