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

// Ring is the memory through which the pod's server answers large reads, nil for none. It stays the set's.
func (s *Set) Ring() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring
}

// Close gives up the ring, for good: of a pod that has no VM any more, or of a server that may still write to it.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring != nil {
		s.ring.Close()
		s.ring = nil
	}
}

// ringFor is the ring for the next server of a pod: the one that its VM has as a disk, since it is the first server's. It
// is nil where that is lost, with a former engine and its server, and where a former server may still write to it: one
// that was killed while it waits for a file system that does not answer. The set gives the ring up then, since a later
// server would use it while the former one's read may still land in it.
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

// ended tells of a process that is not alive whether its last thread has ended, too. Another that has its number by now
// is taken for it.
func ended(pid int) bool {
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return err != nil || len(threads) <= 1
}

// findRing has the ring that a former engine made from the server that it has started. What is there the server may have put
// there: it is checked, and good for nothing but the next server.
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
		s.host.Logger.Debug("the next server answers through the port alone", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = os.NewFile(uintptr(fd), "share-ring") // the caller has the turn
}
