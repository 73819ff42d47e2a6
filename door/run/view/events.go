package view

import (
	"net/http"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/manager/events"
)

// listEvents sends the events of one pod or of all pods. With watch it also sends later events.
func (s *Service) listEvents(r *http.Request, out calls.Send) error {
	ref := r.PathValue("ref")
	var one *manager.Pod
	if ref != "" {
		var err error
		if one, err = refs.Find(s.Pods, ref); err != nil {
			return err
		}
	}
	watch := r.URL.Query().Get("watch") == "true"
	seen := map[*manager.Pod]int64{}
	for {
		next := s.Pods.News()
		list := []*manager.Pod{one}
		if one == nil {
			list = s.Pods.All()
		}
		var found []api.Event
		for _, e := range list {
			var happened []events.Event
			happened, seen[e] = e.Events().Since(seen[e])
			for _, h := range happened {
				found = append(found, apiEvent(e, h))
			}
		}
		slices.SortStableFunc(found, func(a, b api.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp) })
		for _, event := range found {
			if err := out(api.Message{Event: &event}); err != nil {
				return err
			}
		}
		if !watch || one != nil && one.Removed() {
			return nil
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return nil
		}
	}
}

func apiEvent(e *manager.Pod, h events.Event) api.Event {
	event := api.Event{
		Kind: "Event", APIVersion: "v1", Type: "Normal", Reason: h.Reason, Message: h.Message, Count: h.Count,
		FirstTimestamp: h.First.UTC().Truncate(time.Second), LastTimestamp: h.Last.UTC().Truncate(time.Second),
		InvolvedObject: api.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: e.Name(), Namespace: e.Original().Namespace, UID: string(e.UID()),
		},
	}
	if h.Warning {
		event.Type = "Warning"
	}
	if h.Container != "" {
		event.InvolvedObject.FieldPath = "spec.containers{" + h.Container + "}"
	}
	return event
}
