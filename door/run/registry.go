package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// registry is every pod that the user has run and not removed, in memory and
// under $DATA/pods/<uid>/: pod.json and logs.
type registry struct {
	s    *server
	dir  string
	ctx  context.Context // ends with the engine; pods run on
	stop context.CancelFunc
	wg   sync.WaitGroup

	logs    dirwatch.Watches // of who follows them
	orphans orphans
	news    broadcast // of any pod's events, or its end

	mu   sync.Mutex
	pods map[string]*entry // by UID
}

// podsDir holds what is known of each pod, with its logs, and volumesDir its
// volumes' files.
func podsDir(r dirs.Roots) string { return filepath.Join(r.Data, "pods") }

func volumesDir(r dirs.Roots) string { return filepath.Join(r.Instance(client.Instance), "volumes") }

// openRegistry reads the pods back and supervises those that have not ended.
// A pod whose record is damaged is listed as such, until it is removed.
func openRegistry(ctx context.Context, s *server) (*registry, error) {
	r := &registry{s: s, dir: podsDir(s.roots), pods: map[string]*entry{}}
	r.logs.Spawn = func(f func()) bool { r.wg.Go(f); return true }
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := dirs.Ensure(r.dir, 0o700); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("read the pods: %w", err)
	}
	for _, d := range list {
		var rec record
		err := atomicfile.ReadJSON(filepath.Join(r.dir, d.Name(), recordFile), &rec)
		if errors.Is(err, os.ErrNotExist) {
			// A crash between its directory and its record: it never was.
			err = os.RemoveAll(filepath.Join(r.dir, d.Name()))
			if err == nil {
				continue
			}
		}
		if err != nil {
			s.log.Error("a pod's record cannot be read", "uid", d.Name(), "error", err)
			rec = s.salvage(ctx, d.Name(), err)
		}
		e, err := newEntry(r, rec, false)
		if err != nil {
			s.log.Error("a pod cannot be taken over", "uid", d.Name(), "error", err)
			continue
		}
		r.mu.Lock() // those before it may end already
		r.pods[d.Name()] = e
		r.mu.Unlock()
		if rec.Ended == nil {
			e.supervise()
		}
		if rec.Foreground || rec.Stopping || rec.Ended != nil && rec.Remove {
			end := r.orphans.begin(always)
			r.wg.Go(func() { defer end(); e.orphaned() })
		}
	}
	r.look(ctx)
	return r, nil
}

// lookPatience bounds the wait for the pods that were taken over to be looked at.
const lookPatience = 5 * time.Second

// look waits until what is taken over has been looked at: who asks from then on
// is not told of pods that begin.
func (r *registry) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for _, e := range r.all() {
		select {
		case <-e.pod().Observed():
		case <-e.ended():
		case <-ctx.Done():
			return
		}
	}
}

// close stops supervising; the pods run on.
func (r *registry) close() {
	r.stop()
	r.wg.Wait()
}

// running says whether a pod has not ended. Its supervision may have: the end
// of the engine is not the pod's.
func (r *registry) running() bool {
	for _, e := range r.all() {
		e.mu.Lock()
		ended := e.rec.Ended != nil
		e.mu.Unlock()
		if !ended {
			return true
		}
	}
	return false
}

// add takes in a new pod, if its name is free.
func (r *registry) add(rec record) (*entry, error) {
	e, err := newEntry(r, rec, true)
	if err != nil {
		return nil, errors.Join(class(api.ErrInvalid, err), os.RemoveAll(e.dir))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.pods {
		if other.key() == e.key() {
			err := class(api.ErrConflict, fmt.Errorf("pod %s exists already: remove it first (bulkhead rm -f %s)", e.key(), rec.Pod.Name))
			return nil, errors.Join(err, os.RemoveAll(e.dir))
		}
	}
	if err := e.save(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(e.dir))
	}
	fault.Point("pod.saved")
	r.pods[string(rec.Pod.UID)] = e
	return e, nil
}

func (r *registry) forget(e *entry) error {
	fault.Point("pod.deleted")
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("remove pod %s: %w", e.key(), err)
	}
	e.mu.Lock()
	e.gone = true
	e.mu.Unlock()
	r.news.tell()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, string(e.rec.Pod.UID))
	return nil
}

// all returns the pods, oldest first.
func (r *registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*entry
	for _, e := range r.pods {
		list = append(list, e)
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i].rec.Pod, list[j].rec.Pod
		return a.CreationTimestamp.Before(&b.CreationTimestamp) ||
			a.CreationTimestamp.Equal(&b.CreationTimestamp) && a.Name < b.Name
	})
	return list
}

// find names a pod by its name, namespace/name, or an unambiguous prefix of its
// name, UID or sandbox id. A whole name wins over prefixes.
func (r *registry) find(ref string) (*entry, error) {
	ref = strings.TrimPrefix(ref, "pod/") // as ps -o name has it
	var found []*entry
	for _, e := range r.all() {
		if ref == e.rec.Pod.Name || ref == e.key() || ref == string(e.rec.Pod.UID) {
			found = append(found, e)
		}
	}
	if len(found) == 0 && ref != "" {
		for _, e := range r.all() {
			for _, name := range []string{e.rec.Pod.Name, string(e.rec.Pod.UID), e.pod().Sandbox()} {
				if strings.HasPrefix(name, ref) {
					found = append(found, e)
					break
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("pod %q: %w: bulkhead ps lists the pods", ref, api.ErrNotFound)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, e := range found {
		names = append(names, e.key())
	}
	return nil, fmt.Errorf("pod %q: %w: it may be %s", ref, api.ErrAmbiguous, strings.Join(names, " or "))
}
