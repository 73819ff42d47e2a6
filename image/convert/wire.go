package convert

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
)

// The descriptors of the process. It reads a Request and then the layers, writes a Reply, and has at most two files.
const (
	InputFD = iota
	ReplyFD
	_        // stderr, with the trace of a crash
	SourceFD // the disk, or the archive that is read
	SpareFD  // an archive's decompressed copy, or the pipe for a layer; absent for a disk
)

const (
	maxRequest = 1 << 20
	maxReply   = 16 << 20
	// maxChunk bounds one piece of a layer.
	maxChunk = 256 << 10
)

// Task is a task of the process.
type Task string

// The tasks.
const (
	ToDisk  Task = "disk"  // merge layers into a disk
	ToIndex Task = "index" // list the members of an archive
	ToLayer Task = "layer" // write a disk's files as one layer
)

// Request is a request to the process.
type Request struct {
	Task Task `json:"task"`
	// Limit is the largest size of the file that it writes, in bytes.
	Limit int64 `json:"limit"`
	// DiffIDs are the digests of the layers' uncompressed content, lowest first.
	DiffIDs []digest.Digest `json:"diffIDs,omitempty"`
}

// Reply is the process's only answer.
type Reply struct {
	// Size is the size of the file system on the disk, in bytes.
	Size int64 `json:"size,omitempty"`
	// Members are an archive's members.
	Members []Member `json:"members,omitempty"`
	// Copied: the archive was compressed, and Members lie in the copy.
	Copied bool   `json:"copied,omitempty"`
	Fault  *Error `json:"fault,omitempty"`
}

// Member is a regular file in an archive: Size bytes, starting at Offset. If Link is not empty, the member has the
// content of the member with that name.
type Member struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Link   string `json:"link,omitempty"`
}

// Kind is the class of an Error.
type Kind string

// The kinds of errors.
const (
	Invalid Kind = "invalid" // the image breaks a rule or a bound
	Digest  Kind = "digest"  // content does not have its digest
	Large   Kind = "large"   // more than the limit, or than a disk can hold
	Space   Kind = "space"   // the host's disk is full
	Host    Kind = "host"    // anything else
)

// Error is the reason why the process failed. Its text is one clean line.
type Error struct {
	Kind Kind `json:"kind"`
	// Layer is the number of the layer at fault, from 0, or -1.
	Layer int    `json:"layer"`
	Text  string `json:"text"`
}

func (f *Error) Error() string { return f.Text }

// errMessage is returned for an invalid message of this protocol.
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

// receive reads a message of at most limit bytes. It allocates only as much as has arrived, whatever the length says.
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

// ReadRequest reads the request, and no byte beyond it.
func ReadRequest(r io.Reader) (Request, error) {
	var req Request
	err := receive(r, maxRequest, &req)
	return req, err
}

// sendLayer writes a layer in chunks, each with its length. An empty chunk ends it.
func sendLayer(w io.Writer, layer io.Reader, buf []byte) error {
	for {
		n, err := layer.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, err := w.Write(buf[:4+n]); err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // an error that wraps io.EOF is a failure
			_, err = w.Write([]byte{0, 0, 0, 0})
			return err
		}
		if err != nil {
			return &sourceError{err}
		}
	}
}

// sourceError is a failure to read a layer. Failures to send it have no such type.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// LayerReader reads one layer that sendLayer has written.
type LayerReader struct {
	in   io.Reader
	rest uint32
	end  bool
}

// NewLayerReader reads the layer that starts at in.
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
