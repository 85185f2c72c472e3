package bench

import (
	"bytes"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// A plot is a picture of one or more charts side by side. The same plot always gives the same bytes.
type plot struct {
	Title  string
	Charts []chart
}

// A chart shows several series over the same x axis. Linear axes begin at zero, so that heights can be compared.
type chart struct {
	X, Y   axis
	Series []series
}

// An axis has a label and a scale.
type axis struct {
	Label    string
	Log      bool // powers of ten at equal distances; zero and negative values are left out
	AtPoints bool // with Log: the axis runs from the least value to the greatest, with a tick at each
}

// A series is a line through measured points.
type series struct {
	Name   string
	Points []point // in ascending order of X
	Limit  bool    // a target and not a measurement: drawn dashed, without marks
}

type point struct{ X, Y float64 }

// Sizes of a chart and of its margins, in pixels.
const (
	chartWidth, chartHeight    = 420, 300
	marginLeft, marginRight    = 64, 20
	marginTop, marginBottom    = 44, 48
	legendHeight, legendColumn = 20, 210
)

// Neutral and the palette have a contrast of at least 3 on white and on black: an SVG cannot know which of the two its
// page has.
const neutral = "#787878"

var palette = []string{"#1a82d8", "#cf6410", "#2c9151", "#b958ae", "#8a7d14"}

// svg draws the plot.
func (p plot) svg() []byte {
	rows := 0
	for _, c := range p.Charts {
		rows = max(rows, (len(c.Series)+1)/2)
	}
	width, height := chartWidth*max(len(p.Charts), 1), chartHeight+legendHeight*rows
	var b bytes.Buffer
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n",
		width, height, width, height, neutral)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.Title))
	text(&b, float64(width)/2, 18, `text-anchor="middle" font-size="14" font-weight="bold"`, p.Title)
	for i, c := range p.Charts {
		fmt.Fprintf(&b, `<g transform="translate(%d 0)">`+"\n", i*chartWidth)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (c chart) draw(b *bytes.Buffer) {
	x := c.X.scale(c.values(func(p point) float64 { return p.X }), marginLeft, chartWidth-marginRight)
	y := c.Y.scale(c.values(func(p point) float64 { return p.Y }), chartHeight-marginBottom, marginTop)
	for _, tick := range y.ticks {
		line(b, marginLeft, y.at(tick), chartWidth-marginRight, y.at(tick), `stroke-opacity="0.3"`)
		text(b, marginLeft-6, y.at(tick)+4, `text-anchor="end"`, short(tick))
	}
	line(b, marginLeft, marginTop, marginLeft, chartHeight-marginBottom, "")
	line(b, marginLeft, chartHeight-marginBottom, chartWidth-marginRight, chartHeight-marginBottom, "")
	for _, tick := range x.ticks {
		line(b, x.at(tick), chartHeight-marginBottom, x.at(tick), chartHeight-marginBottom+4, "")
		text(b, x.at(tick), chartHeight-marginBottom+17, `text-anchor="middle"`, short(tick))
	}
	text(b, (marginLeft+chartWidth-marginRight)/2, chartHeight-marginBottom+36, `text-anchor="middle"`, c.X.Label)
	text(b, 8, marginTop-10, "", c.Y.Label)
	for i, s := range c.Series {
		colour := palette[i%len(palette)]
		s.draw(b, x, y, colour)
		left, top := float64(marginLeft+i%2*legendColumn-40), float64(chartHeight+i/2*legendHeight)
		fmt.Fprintf(b, `<path d="M%s %sh20" %s/>`+"\n", decimal(left), decimal(top+6), s.stroke(colour))
		text(b, left+26, top+10, "", s.Name)
	}
}

// values returns one coordinate of all points.
func (c chart) values(of func(point) float64) (all []float64) {
	for _, s := range c.Series {
		for _, p := range s.Points {
			all = append(all, of(p))
		}
	}
	return all
}

func (s series) draw(b *bytes.Buffer, x, y scale, colour string) {
	var path strings.Builder
	command := "M"
	for _, p := range s.Points {
		if !x.has(p.X) || !y.has(p.Y) {
			continue
		}
		path.WriteString(command + decimal(x.at(p.X)) + " " + decimal(y.at(p.Y)))
		command = "L"
	}
	if path.Len() == 0 {
		return
	}
	fmt.Fprintf(b, `<path d="%s" %s/>`+"\n", path.String(), s.stroke(colour))
	for _, p := range s.Points {
		if !s.Limit && x.has(p.X) && y.has(p.Y) {
			fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="3.5" fill="%s"><title>%s: %s at %s</title></circle>`+"\n",
				decimal(x.at(p.X)), decimal(y.at(p.Y)), colour, html.EscapeString(s.Name), short(p.Y), short(p.X))
		}
	}
}

func (s series) stroke(colour string) string {
	if s.Limit {
		return `fill="none" stroke-width="1.5" stroke-dasharray="5 4" stroke="` + neutral + `"`
	}
	return `fill="none" stroke-width="2" stroke="` + colour + `"`
}

func line(b *bytes.Buffer, x1, y1, x2, y2 float64, more string) {
	fmt.Fprintf(b, `<path d="M%s %sL%s %s" stroke="%s" %s/>`+"\n", decimal(x1), decimal(y1), decimal(x2), decimal(y2),
		neutral, more)
}

func text(b *bytes.Buffer, x, y float64, more, s string) {
	fmt.Fprintf(b, `<text x="%s" y="%s" %s>%s</text>`+"\n", decimal(x), decimal(y), more, html.EscapeString(s))
}

// decimal formats a coordinate.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
