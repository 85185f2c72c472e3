package definitions

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// A definition in which every field is set is read as encoding/json reads it.
func TestADefinitionIsReadWhole(t *testing.T) {
	t.Parallel()
	var want jobspec.Definition
	fill(t, reflect.ValueOf(&want).Elem())
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	read := func(how func(into *jobspec.Definition) error) (d jobspec.Definition) {
		if err := how(&d); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return d
	}
	got := read(func(d *jobspec.Definition) error { return unmarshal(text, d) })
	by := read(func(d *jobspec.Definition) error {
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		return strict.Decode(d)
	})
	if !reflect.DeepEqual(got, by) {
		t.Errorf("read as %+v, by encoding/json as %+v", got, by)
	}
	again, err := json.Marshal(got)
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("%s is read as %s (%v)", text, again, err)
	}
	for _, broken := range []string{`{"name":"a","newer":1}`, `{"name":1}`, `{"target":{"body":{}`, `[]`, ``} {
		if err := unmarshal([]byte(broken), new(jobspec.Definition)); err == nil {
			t.Errorf("%s is read", broken)
		}
	}
}

// fill sets a value, and everything in it.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch into := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*into = json.RawMessage(`{"a":[1e400,{"b":null,"b":"\ud83d\ude00"}]}`)
		return
	case *jobspec.EventFilter:
		*into = `{"country":["DE","AT"],"paid":true}`
		return
	case *jobspec.Duration:
		*into = jobspec.DurationOf(90 * time.Second)
		return
	case *jobspec.Instant:
		*into = jobspec.InstantOf(time.Unix(1e9, 0))
		return
	case *jobspec.Hidden:
		*into = jobspec.SealedAs(uuid.MustParse("019ad964-3b80-8b21-8f6e-1d2c3b4a5968"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(t, value)
		v.SetMapIndex(reflect.ValueOf("Ä <&>").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("tëxt <&> \u2028")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		t.Fatalf("a definition has a %s", v.Type())
	}
}
