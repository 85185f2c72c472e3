package dashboard

import (
	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/store/fleet"
)

// queuesView is the page of the queues, of the replicas and of what is held back.
type queuesView struct {
	Queues   httpapi.QueueList
	Replicas []fleet.Replica // for operators only
	Breakers []fleet.Breaker
	Limits   httpapi.LimitList
}

func (v *visit) queues() error {
	view, err := v.readQueues()
	return v.shows(err, "queues", "Queues and replicas", view)
}

func (v *visit) readQueues() (view queuesView, err error) {
	if view.Queues, err = call(v, client.Queues, nil); err != nil {
		return view, err
	}
	breakers, err := call(v, client.Breakers, nil)
	if err != nil {
		return view, err
	}
	view.Breakers = breakers.Data
	if view.Limits, err = call(v, client.Limits, nil); err != nil {
		return view, err
	}
	view.Replicas, err = v.replicas()
	return view, err
}

// replicas returns the replicas, if the visitor may know of them.
func (v *visit) replicas() ([]fleet.Replica, error) {
	if !v.may(auth.RoleOperator) {
		return nil, nil
	}
	list, err := call(v, client.Replicas, nil)
	return list.Data, err
}

func (v *visit) resetBreakers() error {
	body := map[string]string{}
	if host := v.field("host"); host != "" {
		body["host"] = host
	}
	_, err := call(v, client.ResetBreakers, body)
	return v.done(err, "/queues", "The breakers are being reset.")
}
