package httpapi

import (
	"context"
	"net/http"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/secrets"
)

func (s *server) secretRoutes() {
	api.RegisterBody[SecretInput](s.api, api.Operation{
		ID: "put-secret", Route: "PUT /v1/secrets/{secret}", Role: auth.RoleAdmin, Tag: tagSecrets,
		Summary: "Create or replace a secret",
		Asks:    `{"value":"s3cr3t","description":"of the billing team"}`,
		Description: "The value is stored encrypted and never shown again. All jobs that refer to the secret use a new " +
			"value within 10 seconds. The same value and description change nothing.",
	}, api.Required, s.putSecret)
	api.Register(s.api, api.Operation{
		ID: "list-secrets", Route: "GET /v1/secrets", Role: auth.RoleAdmin, Tag: tagSecrets, Summary: "List secrets",
		Description: "Newest first, with their names but never their values.",
	}, s.listSecrets)
	api.Register(s.api, api.Operation{
		ID: "get-secret", Route: "GET /v1/secrets/{secret}", Role: auth.RoleAdmin, Tag: tagSecrets, Summary: "Get a secret",
		Description: "Everything about the secret except its value.",
	}, s.getSecret)
	api.Register(s.api, api.Operation{
		ID: "delete-secret", Route: "DELETE /v1/secrets/{secret}", Role: auth.RoleAdmin, Tag: tagSecrets,
		Summary: "Delete a secret",
		Conflict: problem.New(problem.CodeState,
			`Secret "billing-token" is used by active or paused jobs: daily-invoice-gen.`),
		Description: "The response is 409 while active or paused jobs refer to the secret. It names up to ten of them.",
	}, s.deleteSecret)
	api.Register(s.api, api.Operation{
		ID: "create-signing-secret", Route: "POST /v1/signing-secrets", Role: auth.RoleAdmin, Tag: tagSecrets,
		Summary: "Create a signing secret", Status: http.StatusCreated,
		Conflict: stateConflict("There are 10 live signing secrets; delete one first"),
		Description: "It signs within 10 seconds, in addition to the other signing secrets. The response shows the secret, " +
			"once. To rotate: create one, give it to the receivers, and delete the old one.",
	}, s.createSigningSecret)
	api.Register(s.api, api.Operation{
		ID: "list-signing-secrets", Route: "GET /v1/signing-secrets", Role: auth.RoleAdmin, Tag: tagSecrets,
		Summary: "List signing secrets", Errors: []int{422},
		Description: "The live signing secrets, oldest first. Every callback has one signature by each of them. A secret " +
			"is shown when it is created, and never again.",
	}, s.listSigningSecrets)
	api.Register(s.api, api.Operation{
		ID: "delete-signing-secret", Route: "DELETE /v1/signing-secrets/{signing_secret}", Role: auth.RoleAdmin,
		Tag: tagSecrets, Summary: "Delete a signing secret",
		Conflict: stateConflict("Signing secret 019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e is the last one that does not " +
			"expire; create another first"),
		Description: "At once, or with ?in= after a delay. The last signing secret that does not expire cannot be deleted: " +
			"409.",
	}, s.deleteSigningSecret)
}

// SecretInput is the body that creates or replaces a secret.
type SecretInput struct {
	Value       jobspec.Hidden `json:"value" minLength:"1" maxLength:"65536" doc:"The secret: at most 64 KiB of UTF-8. It is never shown." example:"s3cr3t"`
	Description string         `json:"description,omitempty" maxLength:"1024" doc:"For people. Absent: none." example:"of the billing team"`
}

// maxSecret bounds the value of a secret, in bytes. A chain of certificates and its key fit.
const maxSecret = 64 << 10

func (in SecretInput) validate() []problem.FieldError {
	var errors []problem.FieldError
	switch value := in.Value.Value(); {
	case in.Value.IsZero():
		errors = append(errors, problem.At("body.value", "is required"))
	case value == jobspec.Mask:
		errors = append(errors, problem.At("body.value", `"***" is the mask, not the value: write the value`))
	case len(value) > maxSecret:
		errors = append(errors, problem.Atf("body.value", "%d bytes; at most %d (64 KiB)", len(value), maxSecret))
	}
	return append(errors, prose("body.description", in.Description, maxNote)...)
}

// SecretRef is the input of operations on one secret.
type SecretRef struct {
	Name string `path:"secret" doc:"Name of the secret." example:"billing-token"`
}

// Exists returns ErrNotFound for a malformed name.
func (r SecretRef) Exists() error { return mayExist(r.Name) }

// NotFound implements api.Named.
func (SecretRef) NotFound() string { return "There is no secret with that name." }

func (s *server) listSecrets(ctx context.Context, tenant int32, in *Paging) (*answer[List[secrets.Secret]], error) {
	return pageOf(s.Store.Secrets.ListSecrets(ctx, tenant, in.page()))
}

func (s *server) getSecret(ctx context.Context, tenant int32, in *SecretRef) (*answer[secrets.Secret], error) {
	return show(s.Store.Secrets.GetSecret(ctx, tenant, in.Name))
}

type putSecretInput struct {
	SecretRef
	Request body.Body[SecretInput]
}

// Exists never refuses: a PUT may create the secret, and says what is wrong with its name.
func (putSecretInput) Exists() error { return nil }

func (s *server) putSecret(ctx context.Context, tenant int32, in *putSecretInput) (*written[secrets.Secret], error) {
	problems := in.Request.Value.validate()
	if in.SecretRef.Exists() != nil {
		problems = append(problems,
			problem.At("path.secret", "must be 1 to 128 letters, digits and . _ : -, the first a letter or digit"))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	return wrote(s.Store.Secrets.PutSecret(ctx, tenant, in.Name, in.Request.Value.Value.Value(),
		in.Request.Value.Description))
}

func (s *server) deleteSecret(ctx context.Context, tenant int32, in *SecretRef) (*struct{}, error) {
	return nil, s.Store.Secrets.DeleteSecret(ctx, tenant, in.Name)
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
	records, err := s.Store.Secrets.ListSigningSecrets(ctx, tenant)
	return show(SigningSecretList{Data: records}, err)
}

func (s *server) createSigningSecret(
	ctx context.Context, tenant int32, _ *struct{},
) (*answer[NewSigningSecret], error) {
	record, secret, err := s.Store.Secrets.MakeSigningSecret(ctx, tenant)
	return show(NewSigningSecret{record, secret}, err)
}

type deleteSigningSecretInput struct {
	ID pathID `path:"signing_secret" doc:"Id of the signing secret." example:"019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e"`
	In string `query:"in" maxLength:"32" doc:"How long it continues to sign, such as 24h; at most 720h. Absent: it stops at once." example:"24h"`
}

func (d deleteSigningSecretInput) Exists() error { return d.ID.exists() }

// NotFound implements api.Named.
func (deleteSigningSecretInput) NotFound() string { return "There is no signing secret with that id." }

// longestGrace bounds how long a deleted signing secret goes on signing.
const longestGrace = 720 * time.Hour

func (s *server) deleteSigningSecret(
	ctx context.Context, tenant int32, in *deleteSigningSecretInput,
) (*struct{}, error) {
	var grace time.Duration
	if in.In != "" {
		var err error
		if grace, err = time.ParseDuration(in.In); err != nil || grace < 0 || grace > longestGrace {
			return nil, problem.Invalid(problem.Atf("query.in", "%q is not a duration of 0s to %s, such as 24h",
				problem.Clip(in.In), longestGrace))
		}
	}
	return nil, s.Store.Secrets.DeleteSigningSecret(ctx, tenant, in.ID.id, grace)
}
