package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"punctual/internal/process"
	"punctual/store/vault"
)

const withoutMaster = "PUNCTUAL_MASTER_KEY="

// keyFile writes master keys to a file, one per line.
func keyFile(t *testing.T, keys ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "punctual.key")
	must(t, os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600))
	return path
}

func TestServeNeedsItsMasterKey(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	first := vault.NewMasterKey()
	stop(t, replicaWith(t, dsn, keyFile(t, first)))
	const serving = "serve --listen=127.0.0.1:0 --auth=none "
	for _, test := range []wrongUse{
		{"none", serving, "--master-key-file … openssl rand -base64 32 > punctual.key"},
		{
			"none, for payloads", serving + "--encrypt-payloads",
			"--master-key-file … with --encrypt-payloads, payloads … openssl rand -base64 32 > punctual.key",
		},
		{
			"no file", serving + "--master-key-file=/nowhere/punctual.key",
			"--master-key-file … /nowhere/punctual.key",
		},
		{"an empty file", serving + "--master-key-file=" + keyFile(t), "--master-key-file … openssl rand"},
		{
			"another one", serving + "--master-key-file=" + keyFile(t, vault.NewMasterKey()),
			"--master-key-file … no given key is the master key that encrypts the secrets in this database",
		},
	} {
		test.check(t, 1, "DATABASE_URL="+dsn)
	}
	noKey := wrongUse{"no key", serving, "PUNCTUAL_MASTER_KEY … line 1 … openssl rand -base64 32"}
	noKey.check(t, 1, "DATABASE_URL="+dsn, "PUNCTUAL_MASTER_KEY=s3cr3t")
	for _, command := range []string{"migrate", "verify"} {
		succeeds(t, []string{withoutMaster, "DATABASE_URL=" + dsn}, command)
	}
}

// replicaWith starts a replica with a file of master keys.
func replicaWith(t *testing.T, dsn, file string) *process.Replica {
	t.Helper()
	r, err := process.Start(t.Context(), binary(t), []string{"DATABASE_URL=" + dsn, withoutMaster, process.CallLoopback},
		[]string{"serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none", "--master-key-file=" + file})
	must(t, err)
	t.Cleanup(r.Kill)
	return r
}

// The master key is replaced while replicas run. Every callback has its secrets and signature.
//
// First both keys on every replica, then rotate, then the new key alone. All the while jobs send their secrets every
// second.
//
//prove:tenants
func TestANewMasterKeyIsBroughtInWhileReplicasRun(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
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
	calls(t, fleet[0], "PUT", "/v1/secrets/token", map[string]any{"value": "s3cr3t"}, nil)
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
	must(t, process.Create(t.Context(), fleet[0].API, jobs))
	callbacks := func(more int32) {
		t.Helper()
		want := good.Load() + more
		await(t, fmt.Sprintf("%d good callbacks", want), func() bool { return good.Load() >= want })
	}
	callbacks(20)
	says(t, succeeds(t, []string{"DATABASE_URL=" + dsn, withoutMaster}, "secrets", "rotate",
		"--master-key-file="+both, "--new-master-key-file="+keyFile(t, young)), "secrets rotated", "keys_dropped")
	callbacks(20)
	// New secrets are encrypted with the new data key, which the replicas have not seen before.
	calls(t, fleet[0], "PUT", "/v1/secrets/other", map[string]any{"value": "x"}, nil)
	for i := range fleet {
		next := replicaWith(t, dsn, keyFile(t, young))
		stop(t, fleet[i])
		fleet[i] = next
	}
	callbacks(20)
	for _, r := range fleet {
		stop(t, r)
	}
	if bad.Load() > 0 {
		t.Errorf("%d callbacks without their secrets", bad.Load())
	}
}
