package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("punctual"), kong.Vars{"benchmarks": ""})
	must(t, err)
	return parser
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// accepts fails the test unless the binary knows the flags, and their values are valid.
func accepts(t *testing.T, args ...string) {
	t.Helper()
	if _, err := newParser(t).Parse(append(args, "--database-url=postgres://u:p@db/app")); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// objects returns the documents of docs/deploy/kubernetes.yaml by kind.
func objects(t *testing.T) map[string]map[string]any {
	t.Helper()
	decoder, all := yaml.NewDecoder(strings.NewReader(readFile(t, "docs/deploy/kubernetes.yaml"))), map[string]map[string]any{}
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all[object["kind"].(string)] = object
	}
}

// at follows keys and indices into an object.
func at(t *testing.T, object any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch o := object.(type) {
		case map[string]any:
			object = o[step.(string)]
		case []any:
			object = o[step.(int)]
		default:
			t.Fatalf("%v: there is nothing at %v", path, step)
		}
	}
	return object
}

func TestTheManifestsOfKubernetesFitTheBinary(t *testing.T) {
	t.Parallel()
	all := objects(t)
	pod := at(t, all["Deployment"], "spec", "template")
	for _, container := range []any{at(t, pod, "spec", "initContainers", 0), at(t, pod, "spec", "containers", 0)} {
		var args []string
		for _, arg := range at(t, container, "args").([]any) {
			args = append(args, arg.(string))
		}
		accepts(t, args...)
	}
	server := at(t, pod, "spec", "containers", 0)
	for probe, path := range map[string]string{"readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
		if got := at(t, server, probe, "httpGet", "path"); got != path {
			t.Errorf("%s asks %v", probe, got)
		}
	}
	labels := at(t, pod, "metadata", "labels", "app")
	for _, selected := range []any{
		at(t, all["Deployment"], "spec", "selector", "matchLabels", "app"),
		at(t, all["Service"], "spec", "selector", "app"),
		at(t, all["PodDisruptionBudget"], "spec", "selector", "matchLabels", "app"),
	} {
		if selected != labels {
			t.Errorf("%v is selected, and the pod is %v", selected, labels)
		}
	}
	drains(t, at(t, pod, "spec", "terminationGracePeriodSeconds").(int))
}

// drains fails the test unless a supervisor waits for longer than a replica drains by default.
func drains(t *testing.T, seconds int) {
	t.Helper()
	if serve := subcommand(t, "serve"); seconds < 30 || defaultOf(serve, "drain-timeout") != "25s" {
		t.Errorf("%d s are not 5 s longer than the drain of %s", seconds, defaultOf(serve, "drain-timeout"))
	}
}

func TestTheUnitOfSystemdFitsTheBinary(t *testing.T) {
	t.Parallel()
	unit := readFile(t, "docs/deploy/punctual.service")
	words := strings.Fields(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1])
	accepts(t, words[1:]...)
	if !strings.Contains(unit, "\nTimeoutStopSec=30\n") {
		t.Error("it does not wait for 30 s")
	}
	drains(t, 30)
	systemd, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // a machine without systemd
	}
	path := filepath.Join(t.TempDir(), "punctual.service")
	installed := strings.ReplaceAll(unit, words[0], "/bin/true") // the binary is not installed here
	must(t, os.WriteFile(path, []byte(installed), 0o600))
	out, err := exec.CommandContext(t.Context(), systemd, "verify", "--man=no", path).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("punctual.service")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

var metricName = regexp.MustCompile(`\bpunctual_[a-z_]+`)

// Each alarm has its section in the runbooks, and asks for metrics that are documented.
func TestEachAlarmHasItsRunbook(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	must(t, yaml.Unmarshal([]byte(readFile(t, "docs/deploy/rules.yml")), &rules))
	metrics := readFile(t, "docs/reference/metrics.md")
	var alarms, sections []string
	for _, section := range regexp.MustCompile(`(?m)^## (Punctual\w+)$`).FindAllStringSubmatch(readFile(t, "docs/runbooks.md"), -1) {
		sections = append(sections, section[1])
	}
	for _, rule := range rules.Groups[0].Rules {
		alarms = append(alarms, rule.Alert)
		if want := "docs/runbooks.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if rule.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s has no summary or severity", rule.Alert)
		}
		for _, name := range metricName.FindAllString(rule.Expr, -1) {
			if name = strings.TrimSuffix(name, "_bucket"); !strings.Contains(metrics, "`"+name) {
				t.Errorf("%s asks for %s, which docs/reference/metrics.md does not have", rule.Alert, name)
			}
		}
	}
	if !slices.Equal(alarms, sections) || len(alarms) < 12 {
		t.Errorf("the alarms are %q, and the runbooks are about %q", alarms, sections)
	}
}

// subcommand returns a subcommand of the binary.
func subcommand(t *testing.T, name string) *kong.Node {
	t.Helper()
	for _, node := range newParser(t).Model.Children {
		if node.Name == name {
			return node
		}
	}
	t.Fatalf("there is no command %s", name)
	return nil
}

func defaultOf(node *kong.Node, flag string) string {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if f.Name == flag {
				return f.Default
			}
		}
	}
	return ""
}

// docs/reference/config.md has every flag of serve with its default, and no other.
func TestEveryFlagOfServeIsDocumented(t *testing.T) {
	t.Parallel()
	page, flags := readFile(t, "docs/reference/config.md"), map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\|([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		flags[row[1]] = strings.TrimSpace(row[2])
	}
	for _, group := range subcommand(t, "serve").AllFlags(true) {
		for _, f := range group {
			if f.Name == "help" {
				continue
			}
			documented, is := flags[f.Name]
			fits := documented == "`"+f.Default+"`"
			if f.Default == "" { // it has none, or one that words describe
				fits = !strings.HasPrefix(documented, "`")
			}
			if !is || !fits {
				t.Errorf("the default of --%s is %q, and documented is %q", f.Name, f.Default, documented)
			}
			delete(flags, f.Name)
		}
	}
	for name := range flags {
		t.Errorf("there is no --%s", name)
	}
}
