package dashboard

import (
	"net/url"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/manifest"
)

// definitionView is the definition of a job, to read and to copy.
type definitionView struct {
	Job   httpapi.Job
	YAML  string
	Curl  string
	Apply string // as a command of this program
}

func (v *visit) definition(job httpapi.Job) error {
	text, err := manifest.YAML(job.Definition)
	return v.shows(err, "definition", job.Name, definitionView{job, text, v.curl(job), v.apply(text)})
}

// curl returns the command that creates a job.
func (v *visit) curl(job httpapi.Job) string {
	lines := []string{"curl -X PUT " + quoted(v.base()+"/v1/jobs/"+url.PathEscape(job.Name))}
	if !v.NoAuth {
		lines = append(lines, `-H "Authorization: Bearer $PUNCTUAL_API_KEY"`)
	}
	if tenant := v.otherTenant(); tenant != "" {
		lines = append(lines, "-H "+quoted(auth.HeaderTenant+": "+tenant))
	}
	lines = append(lines, "-H 'Content-Type: application/json'", "-d "+quoted(indented(job.Definition)))
	return strings.Join(lines, nextLine)
}

// apply returns the command of this program that creates a job, which it reads from the lines that follow.
func (v *visit) apply(text string) string {
	command := "PUNCTUAL_API_URL=" + quoted(v.base()) + " punctual jobs apply"
	if tenant := v.otherTenant(); tenant != "" {
		command += " --tenant=" + quoted(tenant)
	}
	end := "EOF"
	for strings.Contains(text, end) {
		end += "F"
	}
	return command + " - <<'" + end + "'\n" + text + end
}

// base returns the URL at which the visitor reaches this server.
func (v *visit) base() string {
	if v.r.TLS != nil || v.Secure {
		return "https://" + v.r.Host
	}
	return "http://" + v.r.Host
}

// otherTenant returns the tenant that the visitor acts for, if it is not the visitor's own.
func (v *visit) otherTenant() string {
	if v.caller.Tenant == v.caller.HomeTenant {
		return ""
	}
	return v.caller.Tenant
}

// nextLine continues a command of the shell on its next line.
const nextLine = " \\\n  "

// quoted returns a text as the shell reads it in single quotes.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
