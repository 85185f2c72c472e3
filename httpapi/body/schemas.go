package body

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// The closed lists of the scheduler, as types that describe themselves. Wherever the API uses one of them, its
// description has the enum, and a parameter outside the list is refused.
type (
	runStatus      string
	runTrigger     string
	runReason      string
	attemptOutcome string
)

func (runStatus) Schema(huma.Registry) *huma.Schema      { return OneOf(domain.Statuses()) }
func (runTrigger) Schema(huma.Registry) *huma.Schema     { return OneOf(domain.Triggers()) }
func (runReason) Schema(huma.Registry) *huma.Schema      { return OneOf(domain.Reasons()) }
func (attemptOutcome) Schema(huma.Registry) *huma.Schema { return OneOf(domain.AttemptOutcomes()) }

// OneOf returns the schema of a string out of a list. huma compares it with plain strings.
func OneOf[T ~string](values []T) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: pg.Column(values, func(v T) any { return string(v) })}
}

// Texts of definitions that the domain reads, as types that describe themselves.
type (
	durationText string
	instantText  string
	secretText   string
)

// The formats of these texts. OpenAPI's own duration is that of ISO 8601.
const (
	FormatDuration = "go-duration"
	FormatInstant  = "date-time"
	FormatLocal    = "instant-or-local-time"     // schedule.at, which may lack an offset
	FormatBound    = "instant-local-time-or-day" // of a backfill
	FormatSecret   = "password"
)

func (durationText) Schema(huma.Registry) *huma.Schema { return textOf(FormatDuration) }
func (instantText) Schema(huma.Registry) *huma.Schema  { return textOf(FormatInstant) }
func (secretText) Schema(huma.Registry) *huma.Schema {
	secret := textOf(FormatSecret)
	secret.MinLength = new(1)
	return secret
}

func textOf(format string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: format} }

// SchemaPrefix begins the references to schemas.
const SchemaPrefix = "#/components/schemas/"

// NewSchemas returns an empty registry, which describes the scheduler's types by those above.
func NewSchemas(name func(t reflect.Type, hint string) string) huma.Registry {
	registry := huma.NewMapRegistry(SchemaPrefix, name)
	registry.RegisterTypeAlias(reflect.TypeFor[jobspec.Duration](), reflect.TypeFor[durationText]())
	registry.RegisterTypeAlias(reflect.TypeFor[jobspec.Instant](), reflect.TypeFor[instantText]())
	registry.RegisterTypeAlias(reflect.TypeFor[jobspec.EventFilter](), reflect.TypeFor[map[string]any]())
	registry.RegisterTypeAlias(reflect.TypeFor[jobspec.Hidden](), reflect.TypeFor[secretText]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Status](), reflect.TypeFor[runStatus]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Trigger](), reflect.TypeFor[runTrigger]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.Reason](), reflect.TypeFor[runReason]())
	registry.RegisterTypeAlias(reflect.TypeFor[domain.AttemptOutcome](), reflect.TypeFor[attemptOutcome]())
	return registry
}
