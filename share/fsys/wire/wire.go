// Package wire answers a guest's FUSE messages with a file system.
//
// go-fuse reads and writes the messages. It trusts its peer, which is usually the host's kernel: it allocates as much
// as a request claims for its answer, lets a second greeting change the settings, and logs unknown requests. So this
// package checks each message before go-fuse sees it.
package wire

import (
	"encoding/binary"
	"io"
	"log"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// inHeader is the length of every request's header.
	inHeader = int(unsafe.Sizeof(fuse.InHeader{}))
	// OutHeader is the length of every answer's header.
	OutHeader = int(unsafe.Sizeof(fuse.OutHeader{}))
	// Overhead is the most bytes of a message beyond its data.
	Overhead = 4096
)

// Options configure a connection.
type Options struct {
	// MaxWrite is the most data of one read or write, in bytes: 4,096 to 1 MiB.
	MaxWrite int
	// ACL makes the guest's kernel check access control lists, which the file system passes on.
	ACL bool
	// Background is the most requests that the guest sends ahead of answers; 64 if 0.
	Background int
	// Panicked is called after a panic in a request, which is answered with EIO.
	Panicked func(what any)
}

// Wire is one guest's connection. Answer is safe for concurrent use.
type Wire struct {
	server *fuse.ProtocolServer

	mu    sync.RWMutex // held for writing while the guest is greeted
	ready bool
}

// New returns a Wire that answers with fs.
func New(fs fuse.RawFileSystem, o Options) *Wire {
	if o.Background == 0 {
		o.Background = 64
	}
	return &Wire{server: fuse.NewProtocolServer(fs, &fuse.MountOptions{
		MaxWrite:             o.MaxWrite,
		MaxReadAhead:         o.MaxWrite,
		MaxBackground:        o.Background,
		EnableLocks:          true,
		EnableSymlinkCaching: true,
		EnableAcl:            o.ACL,
		ExtraCapabilities:    fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2,
		DisabledCapabilities: fuse.CAP_PASSTHROUGH | fuse.CAP_NO_OPEN_SUPPORT,
		Logger:               log.New(io.Discard, "", 0),
		PanicHandler: func(what any) fuse.Status {
			if o.Panicked != nil {
				o.Panicked(what)
			}
			return fuse.EIO
		},
	})}
}

// Answer writes the answer to reply and returns its length; 0 for requests without an answer. If the answer may not fit
// into reply, it is an error.
func (w *Wire) Answer(request, reply []byte) int {
	if len(request) < inHeader || len(reply) < OutHeader {
		return 0
	}
	h := header{
		length: binary.NativeEndian.Uint32(request),
		opcode: binary.NativeEndian.Uint32(request[4:]),
		unique: binary.NativeEndian.Uint64(request[8:]),
		node:   binary.NativeEndian.Uint64(request[16:]),
		extra:  binary.NativeEndian.Uint16(request[36:]),
	}
	op, known := operations[h.opcode]
	if err := h.check(op, known, request, len(reply)); err != 0 {
		if op.silent {
			return 0
		}
		return fail(h.unique, err, reply)
	}
	if !w.begin(h.opcode) {
		return fail(h.unique, unix.EIO, reply)
	}
	defer w.end(h.opcode)
	n, st := w.server.HandleRequest([][]byte{request}, [][]byte{reply})
	if st != fuse.OK {
		return fail(h.unique, unix.Errno(st), reply)
	}
	return n
}

// begin and end enclose a request. The first request must be the greeting, and there is only one greeting.
func (w *Wire) begin(opcode uint32) bool {
	if opcode == opInit {
		w.mu.Lock()
		if w.ready {
			w.mu.Unlock()
			return false
		}
		return true
	}
	w.mu.RLock()
	ready := w.ready
	w.mu.RUnlock()
	return ready
}

func (w *Wire) end(opcode uint32) {
	if opcode == opInit {
		w.ready = true
		w.mu.Unlock()
	}
}

// fail writes an error.
func fail(unique uint64, err unix.Errno, reply []byte) int {
	binary.NativeEndian.PutUint32(reply, uint32(OutHeader))
	binary.NativeEndian.PutUint32(reply[4:], uint32(-int32(err)))
	binary.NativeEndian.PutUint64(reply[8:], unique)
	return OutHeader
}
