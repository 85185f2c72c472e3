//prove:other

package prove

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// ociNode is what the test reads of an index, a manifest or a configuration.
type ociNode struct {
	Manifests, Layers []ociLink
	Config            json.RawMessage
	Architecture      string
}

type ociLink struct {
	Digest   string
	Platform struct{ Architecture string }
}

type ociConfig struct {
	User            string
	Env             []string
	Entrypoint, Cmd []string
	Labels          map[string]string
}

// image unpacks the image for this architecture, and returns its root file system and its configuration.
func image(t *testing.T, archive string) (root string, config ociConfig) {
	t.Helper()
	layout := t.TempDir()
	root = filepath.Join(layout, "root")
	must(t, os.Mkdir(root, 0o755))
	command(t, "tar", "-xf", archive, "-C", layout)
	path := func(digest string) string {
		return filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1))
	}
	read := func(file string, node any) { must(t, json.Unmarshal([]byte(readFile(t, file)), node)) }

	var top, index, manifest, described ociNode
	read(filepath.Join(layout, "index.json"), &top)
	read(path(top.Manifests[0].Digest), &index)
	for _, m := range index.Manifests {
		if m.Platform.Architecture == runtime.GOARCH {
			read(path(m.Digest), &manifest)
		}
	}
	if len(manifest.Layers) == 0 {
		t.Fatalf("no image for %s: %+v", runtime.GOARCH, index)
	}
	for _, layer := range manifest.Layers {
		command(t, "tar", "-xzpf", path(layer.Digest), "-C", root)
	}
	var link ociLink
	must(t, json.Unmarshal(manifest.Config, &link))
	read(path(link.Digest), &described)
	must(t, json.Unmarshal(described.Config, &config))
	return root, config
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// oneHierarchy runs a program where only one version of control groups is mounted: crun refuses a mixture, even if it
// is to use none.
const oneHierarchy = `! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified; exec "$0" "$@"`

// The image runs read-only, as its own user, without any capability.
//
// crun starts it, a runtime of containers.
func TestTheImageRunsAsItSays(t *testing.T) {
	triesRelease(t)
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start a container without an engine")
	}
	root, config := image(t, filepath.Join(release(t, "0.0.1"), "punctual-0.0.1-oci.tar"))
	if config.User != "65532:65532" || config.Labels["org.opencontainers.image.version"] != "v0.0.1" {
		t.Errorf("it is %+v", config)
	}
	var size int64
	must(t, filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return err
	}))
	if size > 45e6 {
		t.Errorf("its files have %d bytes", size)
	}

	dsn, address := overTCP(t, pgtest.DSN(t)), freeAddress(t)
	env := append(config.Env, "DATABASE_URL="+dsn, "PUNCTUAL_MASTER_KEY="+process.MasterKey,
		"PUNCTUAL_AUTH=none", "PUNCTUAL_LISTEN="+address)
	bundle := filepath.Dir(root)
	container := func(name string, args ...string) *process.Process {
		specification, err := json.Marshal(map[string]any{
			"ociVersion": "1.0.0",
			"root":       map[string]any{"path": "root", "readonly": true},
			"process": map[string]any{
				"user": map[string]int{"uid": 65532, "gid": 65532}, "cwd": "/", "env": env,
				"args": append(config.Entrypoint, args...), "capabilities": map[string]any{}, "noNewPrivileges": true,
			},
			"mounts": []map[string]string{
				{"destination": "/proc", "type": "proc", "source": "proc"},
				{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			},
			"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}}},
		})
		must(t, err)
		file := filepath.Join(bundle, name+".json")
		must(t, os.WriteFile(file, specification, 0o600))
		p, err := process.LaunchServer("unshare", nil, "--mount", "--propagation=private", "sh", "-c", oneHierarchy, "crun", "--root", filepath.Join(bundle, "state"), "--cgroup-manager=disabled",
			"run", "--bundle", bundle, "--config", file, name)
		must(t, err)
		watch(t, p)
		return p
	}
	replica := container("replica", append(config.Cmd, "--migrate")...)
	api := client.New("http://" + address)
	await(t, "the container", func() bool {
		if replica.Ended() {
			t.Fatalf("it ended: %s", replica.Output())
		}
		status, err := api.Do(t.Context(), "GET", "/readyz", nil, nil)
		return err == nil && status == 200
	})
	check := container("check", "healthcheck") // as an engine runs it
	if code := ended(t, "the check of health", check); code != 0 {
		t.Errorf("the check of health: exit code %d: %s", code, check.Output())
	}
	must(t, replica.Signal(syscall.SIGTERM)) // crun passes it on
	if code := ended(t, "the container", replica); code != 0 {
		t.Errorf("exit code %d: %s", code, replica.Output())
	}
	if trusted := readFile(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")); bytes.Count([]byte(trusted),
		[]byte("BEGIN CERTIFICATE")) < 80 {
		t.Errorf("it trusts %d bytes of authorities", len(trusted))
	}
}
