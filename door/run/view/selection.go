package view

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// selection selects pods. The zero value selects all.
type selection struct {
	namespace, kind, workload string
	labels                    labels.Selector
}

// parseSelection parses the selection of a query, see package api.
func parseSelection(q url.Values) (selection, error) {
	s := selection{namespace: q.Get("namespace"), kind: q.Get("kind"), workload: q.Get("workload")}
	if (s.kind == "") != (s.workload == "") {
		return s, errclass.New(errdefs.ErrInvalidArgument, "invalid selection: a workload has a kind and a name")
	}
	var err error
	if s.labels, err = labels.Parse(q.Get("selector")); err != nil {
		return s, errclass.New(errdefs.ErrInvalidArgument, "selector %q: %w", q.Get("selector"), err)
	}
	return s, nil
}

// has reports whether a pod is selected.
func (s selection) has(p *corev1.Pod) bool {
	owned := func(o metav1.OwnerReference) bool { return o.Kind == s.kind && o.Name == s.workload }
	return s.lists(p.Namespace, p.Labels) && (s.workload == "" || slices.ContainsFunc(p.OwnerReferences, owned))
}

// lists is has for pods with only a known namespace and labels.
func (s selection) lists(namespace string, of map[string]string) bool {
	return (s.namespace == "" || s.namespace == namespace) && (s.labels == nil || s.labels.Matches(labels.Set(of)))
}

// watchInterval bounds the delay of changes that cause no event.
const watchInterval = time.Second

// watch sends the selected pods, and again each that has changed.
func (s *Service) watch(r *http.Request, out calls.Send) error {
	chosen, err := parseSelection(r.URL.Query())
	if err != nil {
		return err
	}
	look := time.NewTicker(watchInterval)
	defer look.Stop()
	known := map[string]api.Pod{}
	for {
		next := s.Pods.News()
		gone := maps.Clone(known)
		for _, p := range s.chosen(r.Context(), chosen) {
			delete(gone, p.UID)
			if last, there := known[p.UID]; there && reflect.DeepEqual(last, p) {
				continue
			}
			known[p.UID] = p
			if err := out(api.Message{Pod: &p}); err != nil {
				return err
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(gone)) {
			p := gone[uid]
			delete(known, uid)
			p.Status, p.Ready, p.Ports = "Removed", 0, nil
			if err := out(api.Message{Pod: &p}); err != nil {
				return err
			}
		}
		select {
		case <-next:
		case <-look.C:
		case <-r.Context().Done():
			return nil
		}
	}
}
