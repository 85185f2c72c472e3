package dashboard

import (
	"net/http"
	"net/url"
)

// positionCookie has the position of the visitor's last write, if the deployment has a read database. It is no secret,
// and goes with the browser's session.
const positionCookie = "punctual-position"

// recall finds the position of the visitor's last write.
func (v *visit) recall() {
	c, err := v.r.Cookie(positionCookie)
	if err != nil {
		return
	}
	v.position, _ = url.QueryUnescape(c.Value)
}

// wrote remembers the position of a write, for the rest of the visit and for the pages that follow.
func (v *visit) wrote(position string) {
	v.position = position
	http.SetCookie(v.w, v.cookie(positionCookie, url.QueryEscape(position), 0))
}
