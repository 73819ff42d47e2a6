package usage

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a file system has to answer.
const patience = time.Second

// Systems asks file systems of the host what they have. One that does not answer, as one of a server that is away, holds
// nobody up, and is not asked again before it has. The zero value is ready; its methods may be called at once.
type Systems struct {
	mu    sync.Mutex
	asked map[string]*question
	// statfs is unix.Statfs if nil.
	statfs func(path string, st *unix.Statfs_t) error
}

// question is one that a file system has not answered yet.
type question struct {
	at       time.Time
	answered chan struct{}
	st       unix.Statfs_t
	err      error
}

// Of is the file system that a directory lies on, as a volume without a name. It is false for one that cannot be asked, or does
// not answer in a second.
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

// minus is none where a file system says that more is free than there is.
func minus(all, free uint64) uint64 { return all - min(free, all) }

// ask asks, or is the question that is still open.
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
	go func() { // which nothing but the file system's answer ends; there is one for each that does not
		q.err = statfs(path, &q.st)
		s.mu.Lock()
		delete(s.asked, path)
		s.mu.Unlock()
		close(q.answered)
	}()
	return q
}
