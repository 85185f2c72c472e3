package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

// forecastView is the load of the next day.
type forecastView struct {
	Forecast httpapi.Forecast
	Chart    template.HTML
	Slots    int // worker slots of all replicas; 0: the visitor may not know
	Problem  *problem.Problem
	Hours    string
}

func (v *visit) forecast() error {
	view := forecastView{Hours: v.param("hours")}
	query := filtered(v.r.URL.Query(), "scope")
	far := 24 * time.Hour
	switch view.Hours {
	case "1":
		far = time.Hour
		query.Set("step", "10s")
	case "168":
		far = 7*24*time.Hour - time.Minute // a forecast reaches seven days from now
		query.Set("step", "15m")
	default:
		view.Hours = "24"
	}
	query.Set("to", time.Now().Add(far).UTC().Truncate(time.Minute).Format(time.RFC3339))
	var err error
	if view.Forecast, err = call(v, client.Forecast, query); err != nil {
		if view.Problem = problemOf(err); view.Problem.Code == problem.CodeInternal {
			return err
		}
		return v.render(view.Problem.Status, "forecast", "Forecast", view)
	}
	replicas, err := v.replicas()
	if err != nil {
		return err
	}
	for _, r := range replicas {
		for _, n := range r.Queues {
			view.Slots += n
		}
	}
	step, _ := time.ParseDuration(view.Forecast.Step)
	view.Chart = bars(view.Forecast.Starts, view.Forecast.From, step, float64(view.Slots))
	return v.show("forecast", "Forecast", view)
}

// bars draws how much there is in each step. What is above the limit is red; 0 is no limit.
func bars(values []float64, from time.Time, step time.Duration, limit float64) template.HTML {
	if len(values) == 0 {
		return ""
	}
	const width, height, left, bottom, above = 1440, 190, 60, 20, 10
	top := roundUp(slices.Max(values))
	if top < 10 {
		top = max(2, 2*math.Ceil(top/2)) // half of it is whole, too
	}
	each := float64(width-left) / float64(len(values))
	y := func(v float64) float64 { return above + float64(height-bottom-above)*(1-v/top) }
	var low, high strings.Builder
	for i, v := range values {
		if v == 0 {
			continue
		}
		x := float64(left) + float64(i)*each
		part := v
		if limit > 0 && v > limit {
			part = limit
			fmt.Fprintf(&high, "M%.1f %.1fV%.1fh%.1fV%.1fz", x, y(limit), y(v), each, y(limit))
		}
		fmt.Fprintf(&low, "M%.1f %dV%.1fh%.1fV%dz", x, height-bottom, y(part), each, height-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot bars" role="img" viewBox="0 0 %d %d" aria-label="Starts in each %s; at most %.0f">`,
		width, height, length(step), top)
	for _, share := range []float64{0, 0.5, 1} {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f">%.4g</text>`,
			left, width, y(share*top), y(share*top), left-8, y(share*top)+4, share*top)
	}
	fmt.Fprintf(&b, `<path class="low" d="%s"/><path class="high" d="%s"/>`, low.String(), high.String())
	for share := range 5 {
		at := from.Add(time.Duration(share) * step * time.Duration(len(values)) / 4)
		class := "at"
		if share == 4 {
			class = "to" // it ends where the plot ends
		}
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d">%s</text>`, class, left+(width-left)*share/4, height-4,
			mark(at, "axis", ""))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // everything in it is a number
}
