package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/problem"
	"punctual/store/secrets"
)

func (s *server) signingSecretRoutes() {
	register(s, huma.Operation{
		OperationID: "list-signing-secrets", Method: http.MethodGet, Path: "/v1/signing-secrets", Tags: []string{tagSecrets},
		Summary: "List signing secrets",
		Description: "The live signing secrets, oldest first. Every callback has one signature by each of them. A secret " +
			"is shown when it is created, and never again.",
		Errors: []int{422},
	}, s.listSigningSecrets)

	register(s, huma.Operation{
		OperationID: "create-signing-secret", Method: http.MethodPost, Path: "/v1/signing-secrets",
		Tags: []string{tagSecrets}, Summary: "Create a signing secret", DefaultStatus: http.StatusCreated,
		Description: "It signs within 10 seconds, in addition to the other signing secrets. The response shows the secret, " +
			"once. To rotate: create one, give it to the receivers, and delete the old one.",
		Errors: []int{409},
	}, s.createSigningSecret)

	register(s, huma.Operation{
		OperationID: "delete-signing-secret", Method: http.MethodDelete, Path: "/v1/signing-secrets/{signing_secret}",
		Tags: []string{tagSecrets}, Summary: "Delete a signing secret",
		Description: "At once, or with ?in= after a delay. The last signing secret that does not expire cannot be deleted: " +
			"409.",
		Errors: []int{409},
	}, s.deleteSigningSecret)
}

// NewSigningSecret is a signing secret that was just created.
type NewSigningSecret struct {
	secrets.SigningSecret
	Secret string `json:"secret" doc:"For the receivers' Standard Webhooks library. It is never shown again." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="`
}

// SigningSecretList lists all live signing secrets; there are at most ten.
type SigningSecretList struct {
	Data []secrets.SigningSecret `json:"data" doc:"The live signing secrets, oldest first."`
}

func (s *server) listSigningSecrets(
	ctx context.Context, tenant int32, _ *struct{},
) (*answer[SigningSecretList], error) {
	records, err := s.Store.ListSigningSecrets(ctx, tenant)
	return show(SigningSecretList{Data: records}, err)
}

func (s *server) createSigningSecret(
	ctx context.Context, tenant int32, _ *struct{},
) (*answer[NewSigningSecret], error) {
	record, secret, err := s.Store.MakeSigningSecret(ctx, tenant)
	return show(NewSigningSecret{record, secret}, err)
}

type deleteSigningSecretInput struct {
	ID string `path:"signing_secret" doc:"Id of the signing secret." example:"019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e"`
	In string `query:"in" maxLength:"32" doc:"How long it continues to sign, such as 24h; at most 720h. Absent: it stops at once." example:"24h"`
}

// longestGrace bounds how long a deleted signing secret goes on signing.
const longestGrace = 720 * time.Hour

func (s *server) deleteSigningSecret(
	ctx context.Context, tenant int32, in *deleteSigningSecretInput,
) (*struct{}, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	var grace time.Duration
	if in.In != "" {
		if grace, err = time.ParseDuration(in.In); err != nil || grace < 0 || grace > longestGrace {
			return nil, problem.Invalid(problem.Atf("query.in", "%q is not a duration of 0s to %s, such as 24h",
				problem.Clip(in.In), longestGrace))
		}
	}
	return nil, s.Store.DeleteSigningSecret(ctx, tenant, id, grace)
}
