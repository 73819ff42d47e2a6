package service

import sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

// Pod returns the Sandbox service without a connection.
func (s *Services) Pod() sandboxv1.TTRPCSandboxService { return pod{s} }

// Remembered returns the number of processes with stored names.
func (s *Services) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.io)
}
