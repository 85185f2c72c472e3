package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/store/vault"
)

const withoutMaster = "PUNCTUAL_MASTER_KEY="

// keyFile writes master keys to a file, one per line.
func keyFile(t *testing.T, keys ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "punctual.key")
	if err := os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestServeNeedsItsMasterKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	first := vault.NewMasterKey()
	r := replicaWith(t, dsn, keyFile(t, first))
	stopReplica(t, r)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want []string
	}{
		{"none", []string{withoutMaster}, nil, []string{"--master-key-file", "openssl rand -base64 32 > punctual.key"}},
		{
			"no key",
			[]string{"PUNCTUAL_MASTER_KEY=s3cr3t"},
			nil,
			[]string{"PUNCTUAL_MASTER_KEY", "line 1", "openssl rand -base64 32"},
		},
		{
			"no file", nil,
			[]string{"--master-key-file=/nowhere/punctual.key"},
			[]string{"--master-key-file", "/nowhere/punctual.key"},
		},
		{"an empty file", nil, []string{"--master-key-file=" + keyFile(t)}, []string{"--master-key-file", "openssl rand"}},
		{
			"another one", nil,
			[]string{"--master-key-file=" + keyFile(t, vault.NewMasterKey())},
			[]string{"--master-key-file", "no given key is the master key that encrypts the secrets in this database"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out := punctual(t, append(c.env, "DATABASE_URL="+dsn),
				append([]string{"serve", "--listen=127.0.0.1:0", "--auth=none"}, c.args...)...)
			if code != 1 || strings.Contains(out, "s3cr3t") {
				t.Errorf("exit code %d: %s", code, out)
			}
			says(t, out, c.want...)
		})
	}
	for _, command := range []string{"migrate", "verify"} {
		if code, out := punctual(t, []string{withoutMaster, "DATABASE_URL=" + dsn}, command); code != 0 {
			t.Errorf("%s without a master key: exit code %d: %s", command, code, out)
		}
	}
}

// replicaWith starts a replica with a file of master keys.
func replicaWith(t *testing.T, dsn, file string) *process.Replica {
	t.Helper()
	r, err := process.Start(t.Context(), binary(t), []string{"DATABASE_URL=" + dsn, withoutMaster, process.CallLoopback},
		[]string{"serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none", "--master-key-file=" + file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

func stopReplica(t *testing.T, r *process.Replica) {
	t.Helper()
	if err := r.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
}

// A new master key is introduced without a pause: first both keys on every replica, then rotate, then the new key
// alone. All the while jobs send their secrets every second.
func TestANewMasterKeyIsBroughtInWhileReplicasRun(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	old, young := vault.NewMasterKey(), vault.NewMasterKey()
	both := keyFile(t, old, young)
	var good, bad atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer s3cr3t" && r.Header.Get("X-Inline") == "inline" &&
			r.Header.Get("Webhook-Signature") != "" {
			good.Add(1)
		} else {
			bad.Add(1)
		}
	}))
	t.Cleanup(target.Close)
	fleet := []*process.Replica{replicaWith(t, dsn, both), replicaWith(t, dsn, both)}
	call := func(method, path string, in any) {
		t.Helper()
		if _, err := fleet[0].API.Do(t.Context(), method, path, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	call("PUT", "/v1/secrets/token", map[string]any{"value": "s3cr3t"})
	var jobs []process.JobSpec
	for i := range 20 {
		jobs = append(jobs, process.JobSpec{
			"name": fmt.Sprintf("job-%d", i), "schedule": map[string]any{"every": "1s"},
			"jitter": "0s", "retry": map[string]any{"max_attempts": 1}, "target": map[string]any{
				"url": target.URL, "auth": map[string]any{"type": "bearer", "secret": "token"},
				"secret_headers": map[string]any{"X-Inline": "inline"},
			},
		})
	}
	if err := process.Create(t.Context(), fleet[0].API, jobs); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	callbacks := func(more int32) {
		t.Helper()
		want := good.Load() + more
		await(ctx, t, fmt.Sprintf("%d good callbacks", want), func() bool { return good.Load() >= want })
	}
	callbacks(20)
	code, out := punctual(t, []string{"DATABASE_URL=" + dsn, withoutMaster}, "secrets", "rotate",
		"--master-key-file="+both, "--new-master-key-file="+keyFile(t, young))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	says(t, out, "secrets rotated", "keys_dropped")
	callbacks(20)
	// New secrets are encrypted with the new data key, which the replicas have not seen before.
	call("PUT", "/v1/secrets/other", map[string]any{"value": "x"})
	for i := range fleet {
		next := replicaWith(t, dsn, keyFile(t, young))
		stopReplica(t, fleet[i])
		fleet[i] = next
	}
	callbacks(20)
	for _, r := range fleet {
		stopReplica(t, r)
	}
	if bad.Load() > 0 {
		t.Errorf("%d callbacks without their secrets", bad.Load())
	}
}
