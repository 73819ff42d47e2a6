package usage

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the time within which a file system must answer.
const patience = time.Second

// Systems queries the usage of the host's file systems. An unresponsive one, for example of an unreachable server,
// does not block callers. It is not queried again before it answers. The zero value is ready for use, and is safe for
// concurrent use.
type Systems struct {
	mu    sync.Mutex
	asked map[string]*question
	// statfs defaults to unix.Statfs.
	statfs func(path string, st *unix.Statfs_t) error
}

// question is a query that a file system has not answered yet.
type question struct {
	at       time.Time
	answered chan struct{}
	st       unix.Statfs_t
	err      error
}

// Of returns the usage of the file system with a directory, as a volume without a name. It returns false if the file
// system fails or does not answer within a second.
func (s *Systems) Of(path string) (Volume, bool) {
	q := s.ask(path)
	timer := time.NewTimer(patience - time.Since(q.at))
	defer timer.Stop()
	select {
	case <-q.answered:
	case <-timer.C:
		return Volume{}, false
	}
	if q.err != nil {
		return Volume{}, false
	}
	size := uint64(q.st.Bsize)
	return Volume{
		Capacity: q.st.Blocks * size, Available: q.st.Bavail * size, AllInodes: q.st.Files, InodesFree: q.st.Ffree,
		Files: Files{Bytes: minus(q.st.Blocks, q.st.Bfree) * size, Inodes: minus(q.st.Files, q.st.Ffree)},
	}, true
}

// minus returns all - free, or 0 if the file system reports more free space than it has.
func minus(all, free uint64) uint64 { return all - min(free, all) }

// ask starts a query, or returns the one that is running.
func (s *Systems) ask(path string) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.asked[path]; q != nil {
		return q
	}
	statfs := s.statfs
	if statfs == nil {
		statfs = unix.Statfs
	}
	q := &question{at: time.Now(), answered: make(chan struct{})}
	if s.asked == nil {
		s.asked = map[string]*question{}
	}
	s.asked[path] = q
	go func() { // only the file system's answer ends it; each silent file system has at most one
		q.err = statfs(path, &q.st)
		s.mu.Lock()
		delete(s.asked, path)
		s.mu.Unlock()
		close(q.answered)
	}()
	return q
}
