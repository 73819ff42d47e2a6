package shares

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/share"
)

// Ring returns the memory through which the pod's server answers large reads, or nil. The set owns it.
func (s *Set) Ring() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring
}

// Close closes the ring for good. It is for pods without a VM, or when a killed server may still write to the ring.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring != nil {
		s.ring.Close()
		s.ring = nil
	}
}

// ringFor returns the ring for the next server of a pod. The pod's VM has it as a disk since the first server. The
// ring is nil if it was lost with a former engine and its server. It is also nil if a killed server still waits for
// a file system and may write to it. ringFor then closes the ring, because a later server's answers could be
// overwritten.
func (s *Set) ringFor(pod store.Pod) (*os.File, error) {
	if last := pod.ShareServer.PID; last != 0 {
		if !ended(last) {
			s.Close()
			return nil, nil
		}
		return s.Ring(), nil
	}
	if ring := s.Ring(); ring != nil || !pod.Ring {
		return ring, nil
	}
	ring, err := share.NewRing()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = ring
	return ring, nil
}

// ended reports whether the last thread of a dead process has ended too. It does not detect that another process
// has the number by now.
func ended(pid int) bool {
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return err != nil || len(threads) <= 1
}

// findRing gets the former engine's ring from the server. The server may have replaced it, so it is checked, and
// used only for the next server.
func (s *Set) findRing(server procid.ID) {
	if s.Ring() != nil || !s.pod.Record().Ring {
		return
	}
	process, err := server.Open()
	if err != nil {
		return
	}
	defer process.Close()
	fd, err := unix.PidfdGetfd(int(process.Fd()), share.RingFD, 0)
	if err == nil && share.CheckRing(fd) != nil {
		err = errors.Join(share.ErrRing, unix.Close(fd))
	}
	if err != nil {
		s.host.Logger.Debug("the next server cannot use the memory for answers", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = os.NewFile(uintptr(fd), "share-ring") // the caller holds turn
}
