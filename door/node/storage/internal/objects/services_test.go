package objects

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// TestServices: a pod gets the current Services of its namespace and the API server's. A pod without service links gets
// only the API server's.
func TestServices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		resource := corev1.SchemeGroupVersion.WithResource("services")
		add := func(namespace, name string) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if err := w.client.Tracker().Create(resource, s, namespace); err != nil {
				t.Fatal(err)
			}
		}
		add("default", "kubernetes")
		add("own", "web")
		add("other", "db")
		for _, want := range []struct {
			name, namespace string
			links           *bool
			has             string
		}{
			{"with service links", "own", nil, "default/kubernetes own/late own/web"},
			{"without service links", "own", new(bool), "default/kubernetes"},
			{"in the API server's namespace", "default", nil, "default/kubernetes"},
		} {
			name := want.name
			p := pod("1")
			p.Namespace, p.Spec.EnableServiceLinks = want.namespace, want.links
			_, release := w.Of(p)
			synctest.Wait()
			if !w.Known(p) || w.wakes(p.UID) == 0 {
				t.Errorf("a pod %s: known %t, woken %d times", name, w.Known(p), w.wakes(p.UID))
			}
			if want.namespace == "own" && want.links == nil {
				add("own", "late")
				synctest.Wait()
				add("own", "gone")
				synctest.Wait()
				if err := w.client.Tracker().Delete(resource, "own", "gone"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			list, err := w.Services(t.Context(), p.UID)
			var names []string
			for _, s := range list {
				names = append(names, s.Namespace+"/"+s.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); err != nil || got != want.has {
				t.Errorf("a pod %s has %s, %v, want %s", name, got, err, want.has)
			}
			release()
			synctest.Wait()
		}
		if list, err := w.Services(t.Context(), "unknown"); len(list) > 0 || err != nil {
			t.Errorf("a missing pod: %v, %v", list, err)
		}
	})
}

// TestServicesUnread: a pod does not start before its Services are known.
func TestServicesUnread(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("not now")
		})
		w.client.PrependWatchReactor("services", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, nil, errors.New("not now")
		})
		p := pod("1")
		_, release := w.Of(p)
		defer release()
		if _, err := w.Services(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), "services have not yet been read") {
			t.Errorf("unread: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Services(ctx, p.UID); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		if w.Known(p) {
			t.Error("services count as known although they were not read")
		}
	})
}
