package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("punctual"))
	must(t, err)
	return parser
}

// root is the directory of the repository.
const root = "../.."

// readFile reads a file of the repository.
func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
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

// objects returns the documents of a file of docs/deploy by kind.
func objects(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	decoder, all := yaml.NewDecoder(strings.NewReader(readFile(t, "docs/deploy/"+file))), map[string]map[string]any{}
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
	all := objects(t, "kubernetes.yaml")
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

// The chart starts replicas with flags that exist, whatever its values say.
func TestTheChartFitsTheBinary(t *testing.T) {
	t.Parallel()
	args := []string{"serve", "--allow-targets=10.20.0.0/16"}
	for _, file := range []string{"templates/deployment.yaml", "values.yaml"} {
		for _, flag := range regexp.MustCompile(`(?m)^ +- (--[^{\n]+)$`).FindAllStringSubmatch(readFile(t, "docs/deploy/chart/"+file), -1) {
			args = append(args, flag[1])
		}
	}
	if len(args) < 6 {
		t.Errorf("only %q was found", args)
	}
	accepts(t, args...)
	seconds := regexp.MustCompile(`(?m)^terminationGracePeriodSeconds: (\d+)$`).FindStringSubmatch(readFile(t, "docs/deploy/chart/values.yaml"))
	n, err := strconv.Atoi(seconds[1])
	must(t, err)
	drains(t, n)
}

// The autoscaler scales the replicas of the manifests by their worker slots, and never below what they ask for.
func TestTheAutoscalerFitsTheManifests(t *testing.T) {
	t.Parallel()
	deployment, scaled := objects(t, "kubernetes.yaml")["Deployment"], objects(t, "keda.yaml")["ScaledObject"]
	for _, field := range []string{"name", "namespace"} {
		want := at(t, deployment, "metadata", field)
		if got := at(t, scaled, "metadata", field); got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	spec, trigger := at(t, scaled, "spec"), at(t, scaled, "spec", "triggers", 0, "metadata")
	if at(t, spec, "scaleTargetRef", "name") != at(t, deployment, "metadata", "name") ||
		at(t, spec, "minReplicaCount") != at(t, deployment, "spec", "replicas") {
		t.Errorf("%v does not fit the deployment", spec)
	}
	args := at(t, deployment, "spec", "template", "spec", "containers", 0, "args").([]any)
	if !slices.Contains(args, any("--queues=default=500")) || at(t, trigger, "threshold") != "350" {
		t.Errorf("the threshold %v is not 70 %% of the worker slots in %v", at(t, trigger, "threshold"), args)
	}
	promtool(t, map[string]any{"tests": []any{map[string]any{
		"interval": "1m",
		"input_series": []map[string]string{
			{"series": `punctual_in_flight{queue="default",instance="a"}`, "values": "500"},
			{"series": `punctual_in_flight{queue="default",instance="b"}`, "values": "400"},
			{"series": `punctual_in_flight{queue="other",instance="b"}`, "values": "7"},
			{"series": `punctual_queue_depth{queue="default",instance="a"}`, "values": "1000"},
			{"series": `punctual_queue_depth{queue="default",instance="b"}`, "values": "1000"},
		},
		"promql_expr_test": []any{map[string]any{
			"expr": at(t, trigger, "query"), "eval_time": "0m", "exp_samples": []any{map[string]any{"value": 1900, "labels": "{}"}},
		}},
	}}})
}

// promtool evaluates tests of rules, or of queries, by Prometheus itself.
func promtool(t *testing.T, tests map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(tests)
	must(t, err)
	path := filepath.Join(t.TempDir(), "tests.yml")
	must(t, os.WriteFile(path, text, 0o600))
	out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", path).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
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
		want := `{{ or $externalLabels.punctual_runbooks "docs/runbooks.md" }}#` + strings.ToLower(rule.Alert)
		if rule.Annotations["runbook_url"] != want {
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

// firing has for each alarm what it fires by: series of three hours, a value each minute.
var firing = map[string][]string{
	"PunctualReplicaDown":      {`up{job="punctual",instance="a"} 0x180`},
	"PunctualNoReplicaLooks":   {`punctual_last_look_timestamp_seconds{instance="a"} -20+60x180`},
	"PunctualNoReplicaAnswers": {`up{job="punctual",instance="a"} 1x180`},
	"PunctualManyOverdue":      {`punctual_overdue_runs{queue="q"} 101x180`},
	"PunctualClaimsSlow": {
		`punctual_tick_duration_seconds_bucket{instance="a",le="0.1"} 0+1x180`,
		`punctual_tick_duration_seconds_bucket{instance="a",le="0.5"} 0+2x180`,
		`punctual_tick_duration_seconds_bucket{instance="a",le="+Inf"} 0+2x180`,
	},
	"PunctualConnectionsUsedUp": {
		`punctual_database_connections{instance="a",for="api",state="in_use"} 9x180`,
		`punctual_database_connections_max{instance="a",for="api"} 10x180`,
	},
	"PunctualSnapshotOld":       {`punctual_oldest_snapshot_seconds 61x180`},
	"PunctualGatedJobRunsTwice": {`punctual_gated_jobs_with_two_runs 1x180`},
	"PunctualQueueWithoutReplica": {
		`punctual_queue_served{queue="q"} 0x180`, `punctual_queue_depth{queue="q"} 1x180`,
	},
	"PunctualWorkWaits":    {`punctual_oldest_due_seconds{queue="q",waiting_for="nothing"} 31x180`},
	"PunctualReplicaIdles": {`punctual_last_look_timestamp_seconds{instance="a"} 0x180`},
	"PunctualConcurrencyUsedUp": {
		`punctual_in_flight{queue="q",instance="a"} 10x180`, `punctual_worker_slots{queue="q",instance="a"} 10x180`,
		`punctual_queue_depth{queue="q"} 1x180`,
	},
	"PunctualLate": {
		`punctual_lateness_seconds_bucket{le="1"} 0+1x180`, `punctual_lateness_seconds_bucket{le="2.5"} 0+2x180`,
		`punctual_lateness_seconds_bucket{le="+Inf"} 0+2x180`,
	},
	"PunctualObjectiveBurnsFast": {
		`punctual_on_time_total{tenant="a",ok="true"} 0+1000x180`,
		`punctual_on_time_total{tenant="a",ok="false"} 0x130 0+20x50`, // an hour is too short for the rule of six
	},
	"PunctualObjectiveBurnsSlowly": {
		`punctual_on_time_total{tenant="a",ok="true"} 0+1000x180`, `punctual_on_time_total{tenant="a",ok="false"} 0+7x180`,
	},
	"PunctualHostHeldBack": {`punctual_held_by{tenant="a",held_by="breaker b:80",state="open"} 1x180`},
	"PunctualRunsDead": {
		`punctual_runs_total{status="succeeded"} 0+10x180`, `punctual_runs_total{status="dead",reason="http_5xx"} 0+2x180`,
	},
	"PunctualDeadLettersGrow": {
		`punctual_open_dead_letters{tenant="a"} 0+1x180`, `punctual_frozen{tenant=""} 0x180`,
		`punctual_open_dead_letters{tenant="had-none"} _x170 11x10`,
	},
	"PunctualRunsDropped":        {`punctual_dropped_runs_total 0+1x180`},
	"PunctualJobsOverlapping":    {`punctual_overlapping_jobs{tenant="a"} 1x180`},
	"PunctualReplicaLost":        {`punctual_recovered_runs_total 0x175 1x5`},
	"PunctualReplicaLacks":       {`punctual_replica_shortages_total{instance="a",lacks="ports"} 0x175 1x5`},
	"PunctualClockDiffers":       {`punctual_clock_offset_seconds{instance="a"} -1x180`},
	"PunctualSetAside":           {`punctual_set_aside{kind="slot"} 1x180`},
	"PunctualOutcomeLost":        {`punctual_lost_outcomes_total 0x175 1x5`},
	"PunctualPartitionsMissing":  {`punctual_partition_days_ahead 4x180`},
	"PunctualMaintenanceFails":   {`punctual_maintenance_failures_total 0+1x180`},
	"PunctualDaysNotArchived":    {`punctual_archive_waiting_seconds 30000x180`},
	"PunctualNoticesUndelivered": {`punctual_notices_total{result="refused"} 0x175 1x5`},
	"PunctualStillFrozen":        {`punctual_frozen{tenant=""} 1x180`, `punctual_last_look_timestamp_seconds 0x180`},
	"PunctualKeyExpires":         {`punctual_next_key_expiry_timestamp_seconds{tenant="a"} 86400x180`},
	"PunctualZoneDataOld":        {`punctual_zone_data_published_timestamp_seconds -16000000x180`},
}

// quiet are series by which no alarm fires.
var quiet = []string{
	`up{job="punctual",instance="a"} 1x180`, `punctual_queue_served{queue="q"} 1x180`,
	`punctual_queue_depth{queue="q"} 5x180`, `punctual_oldest_due_seconds{queue="q",waiting_for="host"} 900x180`,
	`punctual_last_look_timestamp_seconds{instance="a"} 0+60x180`, `punctual_worker_slots{queue="q",instance="a"} 10x180`,
	`punctual_in_flight{queue="q",instance="a"} 9x180`, `punctual_open_dead_letters{tenant="a"} 900x180`,
	`punctual_clock_offset_seconds{instance="a"} 0.1x180`, `punctual_partition_days_ahead 7x180`,
	`punctual_on_time_total{tenant="a",ok="true"} 0+10000x180`, `punctual_on_time_total{tenant="a",ok="false"} 0+1x180`,
	`punctual_notices_total{result="delivered"} 0+1x180`, `punctual_archive_waiting_seconds 3600x180`, `punctual_frozen{tenant=""} 0x180`,
	`punctual_dropped_runs_total 0x170 9x10`,
}

// Prometheus itself evaluates the rules: each alarm fires by its series, and it alone; by others none does.
func TestEachAlarmFires(t *testing.T) {
	t.Parallel()
	type series struct {
		Series, Values string
	}
	type sample struct {
		Labels string
		Value  float64
	}
	type query struct {
		Expr    string
		At      string   `yaml:"eval_time"`
		Samples []sample `yaml:"exp_samples"`
	}
	type test struct {
		Interval string
		Name     string
		Input    []series `yaml:"input_series"`
		Queries  []query  `yaml:"promql_expr_test"`
	}
	rules, err := filepath.Abs(filepath.Join(root, "docs/deploy/rules.yml"))
	must(t, err)
	file := map[string]any{"rule_files": []string{rules}, "evaluation_interval": "5m"}
	var tests []test
	add := func(name string, lines []string, alarms ...sample) {
		one := test{Interval: "1m", Name: name}
		for _, line := range lines {
			end := strings.LastIndex(line, "}") + 1
			if end == 0 {
				end = strings.Index(line, " ")
			}
			one.Input = append(one.Input, series{line[:end], strings.TrimSpace(line[end:])})
		}
		one.Queries = []query{{`group by (alertname) (ALERTS{alertstate="firing"})`, "3h", alarms}}
		tests = append(tests, one)
	}
	add("all is well", quiet)
	for name, lines := range firing {
		if name != "PunctualNoReplicaLooks" && name != "PunctualNoReplicaAnswers" {
			lines = append(lines, `punctual_last_look_timestamp_seconds{instance="another"} 0+60x180`)
		}
		add(name, lines, sample{`{alertname="` + name + `"}`, 1})
	}
	file["tests"] = tests
	promtool(t, file)
	for _, alarm := range regexp.MustCompile(`(?m)- alert: (\w+)`).FindAllStringSubmatch(readFile(t, "docs/deploy/rules.yml"), -1) {
		if firing[alarm[1]] == nil {
			t.Errorf("nothing shows that %s fires", alarm[1])
		}
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
