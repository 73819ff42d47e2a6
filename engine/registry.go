package engine

import (
	"context"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// registry has the pods that the engine holds or works on.
type registry struct {
	mu      sync.Mutex
	pods    map[string]*pod // visible pods by id
	working map[string]bool // ids of pods that are being started
}

// find returns the pod by its id or a unique prefix of it.
func (r *registry) find(id string) (*pod, error) {
	if id == "" {
		return nil, failure.Invalid("no pod sandbox id is given")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[id]; p != nil {
		return p, nil
	}
	var found *pod
	for full, p := range r.pods {
		if !strings.HasPrefix(full, id) {
			continue
		}
		if found != nil {
			return nil, failure.Invalid("pod sandbox %s: more than one id begins with this", id)
		}
		found = p
	}
	if found == nil {
		return nil, failure.New(errdefs.ErrNotFound, "pod sandbox %.80s: not found", id)
	}
	return found, nil
}

// findContainer returns the container by its id or a unique prefix of it.
func (r *registry) findContainer(id string) (*container, error) {
	if id == "" {
		return nil, failure.Invalid("no container id is given")
	}
	var found *container
	for _, p := range r.all() {
		p.mu.Lock()
		for full, c := range p.containers {
			if full == id {
				p.mu.Unlock()
				return c, nil
			}
			if strings.HasPrefix(full, id) {
				if found != nil {
					p.mu.Unlock()
					return nil, failure.Invalid("container %s: more than one id begins with this", id)
				}
				found = c
			}
		}
		p.mu.Unlock()
	}
	if found == nil {
		return nil, failure.New(errdefs.ErrNotFound, "container %.80s: not found", id)
	}
	return found, nil
}

// all returns the visible pods.
func (r *registry) all() []*pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := make([]*pod, 0, len(r.pods))
	for _, p := range r.pods {
		pods = append(pods, p)
	}
	return pods
}

// hold makes a pod visible to clients.
func (r *registry) hold(p *pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[p.id] = p
}

// drop removes a pod.
func (r *registry) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, id)
}

// busy reports whether the engine holds the pod or works on it.
func (r *registry) busy(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[id] != nil || r.working[id]
}

// starting sets whether the pod with this id is being created.
func (r *registry) starting(id string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.working[id] = true
	} else {
		delete(r.working, id)
	}
}

// acquire waits for the operation on a pod, if clients see the pod.
func (r *registry) acquire(ctx context.Context, id string) (done func(), err error) {
	r.mu.Lock()
	p := r.pods[id]
	r.mu.Unlock()
	if p == nil {
		return func() {}, nil
	}
	return p.done, p.acquire(ctx)
}

// existing returns the id of the ready pod with the key.
func (r *registry) existing(key string) (string, error) {
	for _, p := range r.all() {
		record := p.snapshot()
		switch {
		case record.Key != key:
		case record.Phase == store.Ready && record.Exit == "":
			return p.id, nil
		default:
			return "", failure.New(errdefs.ErrAlreadyExists,
				"pod %s: a stopped one (%s) has the name and attempt: remove it, or use the next attempt", key, shortid.Of(p.id))
		}
	}
	return "", nil
}
