package httpapi

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"punctual/scheduler/domain"
)

// The closed lists of the scheduler, as types that describe themselves. Wherever the API uses one of them, its
// description has the enum, and a parameter outside the list is refused.
type (
	runStatus      string
	runTrigger     string
	runReason      string
	attemptOutcome string
)

func (runStatus) Schema(huma.Registry) *huma.Schema      { return oneOf(domain.Statuses()) }
func (runTrigger) Schema(huma.Registry) *huma.Schema     { return oneOf(domain.Triggers()) }
func (runReason) Schema(huma.Registry) *huma.Schema      { return oneOf(domain.Reasons()) }
func (attemptOutcome) Schema(huma.Registry) *huma.Schema { return oneOf(domain.AttemptOutcomes()) }

// DeathReason is a reason for which runs die.
type DeathReason domain.Reason

// Schema lists the reasons for which runs die.
func (DeathReason) Schema(huma.Registry) *huma.Schema {
	return oneOf(domain.ReasonsOf(domain.StatusDead))
}

// known reports whether runs die for this reason.
func (r DeathReason) known() bool {
	return slices.Contains(domain.ReasonsOf(domain.StatusDead), domain.Reason(r))
}

// oneOf returns the schema of a string out of a list. huma compares it with plain strings.
func oneOf[T ~string](values []T) *huma.Schema {
	schema := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		schema.Enum = append(schema.Enum, string(v))
	}
	return schema
}

// Texts of definitions that the domain reads, as types that describe themselves.
type (
	durationText string
	instantText  string
	secretText   string
)

// The formats of these texts. OpenAPI's own duration is that of ISO 8601.
const (
	formatDuration = "go-duration"
	formatInstant  = "date-time"
	formatLocal    = "instant-or-local-time"     // schedule.at, which may lack an offset
	formatBound    = "instant-local-time-or-day" // of a backfill
	formatSecret   = "password"
)

func (durationText) Schema(huma.Registry) *huma.Schema { return textOf(formatDuration) }
func (instantText) Schema(huma.Registry) *huma.Schema  { return textOf(formatInstant) }
func (secretText) Schema(huma.Registry) *huma.Schema {
	secret := textOf(formatSecret)
	secret.MinLength = new(1)
	return secret
}

func textOf(format string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: format} }

// newSchemas returns an empty registry, which describes the scheduler's types by those above.
func newSchemas() huma.Registry {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Duration](), reflect.TypeFor[durationText]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Instant](), reflect.TypeFor[instantText]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Hidden](), reflect.TypeFor[secretText]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Status](), reflect.TypeFor[runStatus]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Trigger](), reflect.TypeFor[runTrigger]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Reason](), reflect.TypeFor[runReason]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.AttemptOutcome](), reflect.TypeFor[attemptOutcome]())
	return registry
}

// nullIsAChoice adds null to the enum of a property that can be null, as JSON Schema demands.
func nullIsAChoice(property *huma.Schema) {
	if property.Nullable && len(property.Enum) > 0 {
		property.Enum = append(slices.Clip(property.Enum), nil)
	}
}
