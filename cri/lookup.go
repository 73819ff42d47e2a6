package cri

import (
	"strings"

	"google.golang.org/grpc/codes"
)

// find returns the pod that id, or an unambiguous prefix of one, names.
func (s *Service) find(id string) (*pod, error) {
	if id == "" {
		return nil, invalid("no pod sandbox id is given")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[id]; p != nil {
		return p, nil
	}
	var found *pod
	for full, p := range s.pods {
		if !strings.HasPrefix(full, id) {
			continue
		}
		if found != nil {
			return nil, invalid("pod sandbox %s: more than one id begins so", id)
		}
		found = p
	}
	if found == nil {
		return nil, errorf(codes.NotFound, "pod sandbox %.80s: not found", id)
	}
	return found, nil
}

// findContainer returns the container that id, or an unambiguous prefix, names.
func (s *Service) findContainer(id string) (*container, error) {
	if id == "" {
		return nil, invalid("no container id is given")
	}
	var found *container
	for _, p := range s.all() {
		p.mu.Lock()
		for full, c := range p.containers {
			if full == id {
				p.mu.Unlock()
				return c, nil
			}
			if strings.HasPrefix(full, id) {
				if found != nil {
					p.mu.Unlock()
					return nil, invalid("container %s: more than one id begins so", id)
				}
				found = c
			}
		}
		p.mu.Unlock()
	}
	if found == nil {
		return nil, errorf(codes.NotFound, "container %.80s: not found", id)
	}
	return found, nil
}

// all returns the pods that may be seen.
func (s *Service) all() []*pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := make([]*pod, 0, len(s.pods))
	for _, p := range s.pods {
		pods = append(pods, p)
	}
	return pods
}
