package seal

import (
	"errors"
	"strings"
	"testing"

	"punctual/store/vault"
)

// keys are data keys in memory.
type keys struct {
	newest *vault.DataKey
	all    map[int64]*vault.DataKey
}

var errGone = errors.New("it is gone")

func (k *keys) Sealing() (*vault.DataKey, error) { return k.newest, nil }
func (k *keys) Opening(id int64) (*vault.DataKey, error) {
	if key := k.all[id]; key != nil {
		return key, nil
	}
	return nil, errGone
}

func (k *keys) rotate(t testing.TB) {
	t.Helper()
	key, err := vault.NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	k.newest, k.all[key.ID] = key, key
}

// sealers returns a Sealer that is on, and one that is off, with the same keys.
func sealers(t testing.TB) (on, off *Sealer, k *keys) {
	t.Helper()
	k = &keys{all: map[int64]*vault.DataKey{}}
	k.rotate(t)
	on, off = New(true), New(false)
	on.Use(k)
	off.Use(k)
	return on, off, k
}

// stored is a payload in the form of its column.
func stored(t *testing.T, s *Sealer, p payload) string {
	t.Helper()
	text, err := p.stored(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPayloadsAreReadAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	on, off, k := sealers(t)
	for _, given := range []string{
		`{"marker":1}`, `[1,2]`, `"marker"`, `"punctual-sealed-0:marker"`, `"punctual-sealed-1:o:1:2:marker"`,
		`"punctual-sealed-m:marker"`, `17`, `""`, ` {"marker": 1 }`,
	} {
		for name, by := range map[string]*Sealer{"sealed": on, "as it is": off} {
			text, raw, body := stored(t, by, Text(given)), stored(t, by, JSON(given)), stored(t, by, Bytes(given))
			k.rotate(t)
			if by == on && strings.Contains(text+raw+body, "marker") {
				t.Errorf("%s: %s, %s, %s", given, text, raw, body)
			}
			for reader, s := range map[string]*Sealer{"on": on, "off": off} {
				var t2 Text
				var j JSON
				var b Bytes
				err := errors.Join(t2.take(s, []byte(text)), j.take(s, []byte(raw)), b.take(s, []byte(body)))
				if err != nil || string(t2) != given || string(j) != given || string(b) != given {
					t.Errorf("%s, %s, read while it is %s: %q, %q, %q, %v", given, name, reader, t2, j, b, err)
				}
			}
		}
	}
	bare := "punctual-sealed-1:t:1:2:x"
	var back Text
	if err := back.take(off, []byte(stored(t, off, Text(bare)))); err != nil || string(back) != bare {
		t.Errorf("what looks sealed is read as %q, %v", back, err)
	}
}

func TestOnlyBodiesOfADocumentAreSealed(t *testing.T) {
	t.Parallel()
	on, off, _ := sealers(t)
	const given = `{"name":"a","target":{"url":"u","headers":{"x":"plain"},` +
		`"body":{"target":{"body":"marker"},"b":"marker"}},` +
		`"steps":[{"name":"s","target":{"body":"marker","method":"PUT"}},{"name":"n","target":{"body":null}}],` +
		`"labels":{"body":"plain"},"description":"\"body\": plain"}`
	for _, doc := range []string{given, `{"version":1,"definition":` + given + `,"headers":{"a":"marker"}}`} {
		text := stored(t, on, Document(doc))
		if strings.Contains(text, "marker") || strings.Count(text, "plain") != strings.Count(doc, "plain") {
			t.Errorf("sealed: %s", text)
		}
		if plain := stored(t, off, Document(doc)); plain != doc {
			t.Errorf("off: %s", plain)
		}
		var back Document
		if err := back.take(off, []byte(text)); err != nil || string(back) != doc {
			t.Errorf("opened: %s, %v", back, err)
		}
	}
	var odd Document
	err := odd.take(on, []byte(`no JSON "punctual-sealed-1:" "body"`))
	if err != nil || !strings.HasPrefix(string(odd), "no JSON") {
		t.Errorf("what is no JSON is read as %q, %v", odd, err)
	}
}

func TestWhatDoesNotOpenSaysWhy(t *testing.T) {
	t.Parallel()
	on, off, k := sealers(t)
	text := stored(t, on, Text("marker"))
	doc := stored(t, on, Document(`{"target":{"body":1}}`))
	lacking := New(false)
	lacking.Use(&keys{all: map[int64]*vault.DataKey{}})
	for name, c := range map[string]struct {
		by   *Sealer
		text string
		want string
	}{
		"no master key":     {New(false), text, "--master-key-file"},
		"key gone":          {lacking, text, "it is gone"},
		"cut off":           {off, text[:len(text)-2], "cut off"},
		"another length":    {off, strings.Replace(text, ":6:", ":7:", 1), "does not decrypt"},
		"another kind":      {off, strings.Replace(text, ":t:", ":o:", 1), "does not decrypt"},
		"an unknown form":   {off, "punctual-sealed-9:x", "not a sealed value"},
		"a broken one":      {off, "punctual-sealed-1:x", "not a sealed value"},
		"parts in a column": {off, merged + `{}`, "not a sealed value"},
	} {
		var strict Text
		err := strict.take(c.by, []byte(c.text))
		var why *OpenError
		if !errors.As(err, &why) || !strings.Contains(err.Error(), c.want) && c.want != "cut off" {
			t.Errorf("%s: %v", name, err)
		}
		var shown Shown
		if err := shown.take(c.by, []byte(c.text)); err != nil || !strings.Contains(string(shown), "cannot be opened") {
			t.Errorf("%s is shown as %q, %v", name, shown, err)
		}
	}
	var d Document
	if err := d.take(lacking, []byte(doc)); err == nil {
		t.Errorf("a document whose key is gone is read as %s", d)
	}
	var seen shownDocument
	if err := seen.take(lacking, []byte(doc)); err != nil || !strings.Contains(string(seen), "cannot be opened") {
		t.Errorf("it is shown as %s, %v", seen, err)
	}
	k.newest = nil
}

func TestPartsBecomeTheBodyThatSQLWouldMake(t *testing.T) {
	t.Parallel()
	on, _, _ := sealers(t)
	own := stored(t, on, JSON(`{"a":"punctual-sealed-1:x","upstream":"gone","b":"{{job}}"}`))
	result := stored(t, on, JSON(`{"x":"{{"}`))
	for name, c := range map[string]struct{ parts, want string }{
		"with members of its own": {
			`{"own" : ` + own + `, "upstream" : {"run" : "r", "result" : ` + result + `, "job":"\u007b{j\\u007b"}}`,
			`{"a":"punctual-sealed-1:x","b":"{{job}}","upstream":{"run":"r","result":{"x":"{{{{"},"job":"{{{{j\\u007b"}}`,
		},
		"with none": {
			`{"own" : null, "upstream" : {"run" : "r", "result" : ` + result + `}}`,
			`{"upstream":{"run":"r","result":{"x":"{{"}}}`,
		},
		"empty": {
			`{"own" : {}, "upstream" : {"result" : ` + result + `}}`, `{"upstream":{"result":{"x":"{{{{"}}}`,
		},
	} {
		var body Bytes
		if err := body.take(on, []byte(merged+c.parts)); err != nil || string(body) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", name, body, err, c.want)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	on, _, _ := sealers(b)
	for name, size := range map[string]int{"256B": 256, "16KiB": 16 << 10, "256KiB": 256 << 10} {
		body := Bytes(`"` + strings.Repeat("x", size) + `"`)
		token, err := body.stored(on)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("seal/"+name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				_, _ = body.stored(on)
			}
		})
		b.Run("open/"+name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				var back Bytes
				_ = back.take(on, token)
			}
		})
	}
}
