package httpapi

// Example of the documentation: a forecast.
var exampleForecast = Forecast{
	AsOf: at("2026-12-01T10:59:41.207Z"), Scope: ScopeTenant, From: at("2026-12-01T11:00:00Z"),
	To: at("2026-12-01T15:00:00Z"), Step: "1h", Jobs: 60201, Total: 61044,
	Slots: []int{60180, 288, 288, 288}, Starts: []float64{60180, 288, 288, 288},
	Busiest: []BusyStep{{
		At: at("2026-12-01T11:00:00Z"), Slots: 60180, Starts: 60180, Jobs: 60113,
		Most: []BusyJob{
			{ID: exampleJobID, Name: "daily-invoice-gen", Tenant: "default", Starts: 1},
		},
	}},
	Spread: []Spread{
		{At: at("2026-12-01T11:00:00Z"), Starts: 60180},
		{Jitter: new("1m"), At: at("2026-12-01T11:00:00Z"), Starts: 60180},
	},
}
