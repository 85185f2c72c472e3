package privatepg

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

// production holds the settings that differ from Postgres' defaults, as a careful administrator would choose them. The
// defaults are durable.
var production = map[string]string{
	"TimeZone":                "UTC",
	"log_timezone":            "UTC",
	"log_line_prefix":         "%m [%p] %q%u@%d ",
	"cluster_name":            "punctual", // names the processes in ps
	"unix_socket_permissions": "0700",
}

// fast is for data that may be lost.
var fast = map[string]string{
	"fsync":              "off",
	"synchronous_commit": "off",
	"full_page_writes":   "off",
	"wal_level":          "minimal",
	"max_wal_senders":    "0",
}

// arguments returns the command line of postgres. Settings go there rather than into a file, so that they hold for this
// start only.
func (s *Server) arguments(socket string, port int) []string {
	settings := maps.Clone(production)
	settings["unix_socket_directories"] = socket
	settings["port"] = strconv.Itoa(port)
	settings["listen_addresses"] = ""
	if s.cfg.TCP {
		settings["listen_addresses"] = "127.0.0.1"
	}
	if s.has("pg_stat_statements") {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	if s.cfg.Fast {
		maps.Copy(settings, fast)
	}
	maps.Copy(settings, s.cfg.Settings)

	args := []string{"-D", s.pgdata()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// has reports whether the server came with a loadable module. If a module is preloaded but missing, Postgres does not
// start.
func (s *Server) has(module string) bool {
	for _, lib := range []string{"lib", "lib/postgresql", "lib/pgsql", "lib64/pgsql"} {
		for _, ext := range []string{".so", ".dylib"} {
			found, _ := filepath.Glob(filepath.Join(s.bin.dir, "..", lib, module+ext))
			if len(found) > 0 {
				return true
			}
		}
	}
	return false
}
