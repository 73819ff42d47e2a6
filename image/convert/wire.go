package convert

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
)

// The descriptors of the process: it reads a Request and then the layers, it
// writes a Reply, and it has at most two files.
const (
	InputFD = iota
	ReplyFD
	_        // what it writes when it crashes
	SourceFD // the disk, or the archive that is read
	SpareFD  // room for an archive's decompressed copy, or the pipe that a layer is written to; none for a disk
)

const (
	maxRequest = 1 << 20
	maxReply   = 16 << 20
	// maxChunk bounds one piece of a layer.
	maxChunk = 256 << 10
)

// Task is what the process is to do.
type Task string

// The tasks.
const (
	ToDisk  Task = "disk"  // merge layers into a disk
	ToIndex Task = "index" // list the members of an archive
	ToLayer Task = "layer" // write a disk's files as one layer
)

// Request is what the process is asked for.
type Request struct {
	Task Task `json:"task"`
	// Limit is the most bytes that the file which it writes may have.
	Limit int64 `json:"limit"`
	// DiffIDs are the digests of the layers' uncompressed content, lowest first.
	DiffIDs []digest.Digest `json:"diffIDs,omitempty"`
}

// Reply is what the process answers, once.
type Reply struct {
	// Size is that of the file system on the disk, in bytes.
	Size int64 `json:"size,omitempty"`
	// Members are those of an archive.
	Members []Member `json:"members,omitempty"`
	// Copied: the archive was compressed, and Members lie in the copy.
	Copied bool   `json:"copied,omitempty"`
	Fault  *Error `json:"fault,omitempty"`
}

// Member is a regular file in an archive: Size bytes from Offset on. Link, if
// not empty, names the member whose content it has instead.
type Member struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Link   string `json:"link,omitempty"`
}

// Kind says what an Error is about.
type Kind string

// The kinds of errors.
const (
	Invalid Kind = "invalid" // the image breaks a rule or a bound
	Digest  Kind = "digest"  // content does not have its digest
	Large   Kind = "large"   // more than the limit, or than a disk can hold
	Space   Kind = "space"   // the host's disk is full
	Host    Kind = "host"    // anything else
)

// Error is why the process could not do what it was asked for. Its text has
// been cleaned and is one line.
type Error struct {
	Kind Kind `json:"kind"`
	// Layer is the number of the layer at fault, from 0, or -1.
	Layer int    `json:"layer"`
	Text  string `json:"text"`
}

func (f *Error) Error() string { return f.Text }

// errMessage is for a message that is no message of this protocol.
var errMessage = errors.New("not a message of the converter")

// Send writes a message: its length and its JSON.
func Send(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// receive reads a message of at most limit bytes. What the length claims is
// not allocated before it has come.
func receive(r io.Reader, limit int64, message any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(length[:]))
	if n > limit {
		return fmt.Errorf("%w: %d bytes", errMessage, n)
	}
	data, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil {
		return err
	}
	if int64(len(data)) < n {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(data, message); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

// ReadRequest reads the request, and nothing of what follows it.
func ReadRequest(r io.Reader) (Request, error) {
	var req Request
	err := receive(r, maxRequest, &req)
	return req, err
}

// sendLayer writes a layer in chunks, each with its length; a chunk of nothing
// ends it.
func sendLayer(w io.Writer, layer io.Reader, buf []byte) error {
	for {
		n, err := layer.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, err := w.Write(buf[:4+n]); err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // a failure that wraps it is no end
			_, err = w.Write([]byte{0, 0, 0, 0})
			return err
		}
		if err != nil {
			return &sourceError{err}
		}
	}
}

// sourceError is a failure to read a layer, not to pass it on.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// LayerReader reads one layer from the stream in which sendLayer has written it.
type LayerReader struct {
	in   io.Reader
	rest uint32
	end  bool
}

// NewLayerReader reads the layer that begins here.
func NewLayerReader(in io.Reader) *LayerReader { return &LayerReader{in: in} }

// Read returns io.EOF at the layer's end, and an error if the stream ends
// before it.
func (l *LayerReader) Read(p []byte) (int, error) {
	if l.rest == 0 && !l.end {
		var length [4]byte
		if _, err := io.ReadFull(l.in, length[:]); err != nil {
			return 0, fmt.Errorf("read the layer: %w", unexpected(err))
		}
		l.rest = binary.BigEndian.Uint32(length[:])
		l.end = l.rest == 0
	}
	if l.end {
		return 0, io.EOF
	}
	n, err := l.in.Read(p[:min(uint32(min(len(p), maxChunk)), l.rest)])
	l.rest -= uint32(n)
	if err != nil {
		err = fmt.Errorf("read the layer: %w", unexpected(err))
	}
	return n, err
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
