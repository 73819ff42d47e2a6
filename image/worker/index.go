package worker

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/image/erofs"
)

// The bounds of an archive of images: it has at most three files for each layer, and a few others.
const (
	maxMembers  = 16384
	maxNames    = 4 << 20
	maxHeaders  = 1 << 20
	copyBuffer  = 256 << 10
	maxNameSize = 1024
)

// index lists the members of an archive. It copies a compressed one first.
func index(archive, spare *os.File, limit int64) (convert.Reply, error) {
	var reply convert.Reply
	buffered := bufio.NewReaderSize(archive, copyBuffer)
	stream, err := decompress(buffered)
	if !errors.Is(err, errPlain) {
		if err != nil {
			return reply, damaged(err)
		}
		if err := copyTo(spare, stream, limit); err != nil {
			return reply, err
		}
		archive, reply.Copied = spare, true
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return reply, err
	}
	reply.Members, err = members(archive)
	return reply, err
}

// copyTo decompresses at most limit bytes.
func copyTo(spare *os.File, stream io.Reader, limit int64) error {
	buf := make([]byte, copyBuffer)
	for at := int64(0); ; {
		n, err := stream.Read(buf)
		if at+int64(n) > limit {
			return fmt.Errorf("the archive has more than %d bytes: %w", limit, erofs.ErrTooLarge)
		}
		if _, err := spare.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
		if atEOF(err) {
			return nil
		}
		if err != nil {
			return damaged(err)
		}
	}
}

// members lists the regular files, and the links that may refer to one.
func members(archive io.ReadSeeker) ([]convert.Member, error) {
	var list []convert.Member
	top := map[int]string{} // targets of symbolic links as if they were at the top
	in := tar.NewReader(archive)
	for names, headers := 0, 0; ; headers++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			relink(list, top)
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: not a tar archive: %w", errDamaged, err)
		}
		if headers > maxHeaders || len(list) > maxMembers || names > maxNames {
			return nil, fmt.Errorf("%w: the archive has too many files", errDamaged)
		}
		m := convert.Member{Name: path.Clean("/" + h.Name)[1:]}
		switch h.Typeflag {
		case tar.TypeReg:
			m.Size = h.Size
			// At the content: the reader takes whole blocks only.
			if m.Offset, err = archive.Seek(0, io.SeekCurrent); err != nil {
				return nil, err
			}
		case tar.TypeLink:
			m.Link = path.Clean("/" + h.Linkname)[1:]
		case tar.TypeSymlink:
			m.Link = path.Join("/", path.Dir(m.Name), h.Linkname)[1:]
			top[len(list)] = path.Clean("/" + h.Linkname)[1:]
		default:
			continue
		}
		if len(m.Name)+len(m.Link) > maxNameSize || sparse(h) {
			continue
		}
		names += len(m.Name) + len(m.Link)
		list = append(list, m)
	}
}

// relink makes links refer to the top if their own target does not exist: some tools write such links for layer.tar.
func relink(list []convert.Member, top map[int]string) {
	names := map[string]bool{}
	for _, m := range list {
		names[m.Name] = true
	}
	for i := range list {
		if to, ok := top[i]; ok && list[i].Link != "" && !names[list[i].Link] && names[to] {
			list[i].Link = to
		}
	}
}

// sparse reports whether a file's content is stored in another form than plain bytes.
func sparse(h *tar.Header) bool {
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return false
}
