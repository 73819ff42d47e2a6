// Package jsonnode reads a stream of JSON values as yaml.v3 nodes. Unlike encoding/json, the nodes carry line numbers
// for error messages and keep duplicate keys, so that the caller can refuse them.
package jsonnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// ErrTooLarge means that the values have more nodes than allowed, or are nested too deep.
var ErrTooLarge = errors.New("too many values, or nested too deep")

// Stream reads the JSON values of a text, one after the other. It is not safe for concurrent use.
type Stream struct {
	text     []byte
	in       *json.Decoder
	counted  int // bytes of text before which line counts the line breaks
	line     int
	maxDepth int
	left     int // nodes that may still be made
}

// New returns a Stream that reads text. All its values together may have maxNodes nodes, and each may be nested
// maxDepth deep.
func New(text []byte, maxNodes, maxDepth int) *Stream {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	return &Stream{text: text, in: in, line: 1, maxDepth: maxDepth, left: maxNodes}
}

// Next returns the next value and its text. The error is io.EOF after the last value. After another error, Line returns
// its line.
func (s *Stream) Next() (*yamlv3.Node, []byte, error) {
	from := s.in.InputOffset()
	token, err := s.in.Token()
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(s.text[from:])) == 0 {
		return nil, nil, io.EOF
	}
	if err != nil {
		return nil, nil, s.failed(err, space)
	}
	node, err := s.node(token, nil, 0)
	if err != nil {
		return nil, nil, s.failed(err, space+",:")
	}
	return node, bytes.TrimSpace(s.text[from:s.in.InputOffset()]), nil
}

// Line returns the line of the last read text; the first line is 1.
func (s *Stream) Line() int {
	s.count(s.in.InputOffset())
	return s.line
}

func (s *Stream) count(to int64) {
	at := min(int(to), len(s.text))
	if at > s.counted {
		s.line += bytes.Count(s.text[s.counted:at], []byte{'\n'})
		s.counted = at
	}
}

const space = " \t\r\n"

// failed moves Line to the fault, and removes the prefix "json: " from the error. The decoder stops before the
// characters in before, so failed skips them to find the fault.
func (s *Stream) failed(err error, before string) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.count(int64(len(bytes.TrimRight(s.text, space))))
		return errors.New("the text ends within a value")
	}
	rest := s.text[min(s.in.InputOffset(), int64(len(s.text))):]
	s.count(int64(len(s.text) - len(bytes.TrimLeft(rest, before))))
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func (s *Stream) node(token json.Token, err error, depth int) (*yamlv3.Node, error) {
	if err != nil {
		return nil, err
	}
	if s.left--; s.left < 0 || depth > s.maxDepth {
		return nil, ErrTooLarge
	}
	node := &yamlv3.Node{Kind: yamlv3.ScalarNode, Line: s.Line()}
	switch v := token.(type) {
	case json.Delim:
		node.Kind = yamlv3.SequenceNode
		if v == '{' {
			node.Kind = yamlv3.MappingNode
		}
		return node, s.content(node, depth)
	case string:
		node.Tag, node.Value = "!!str", v
	case json.Number:
		// One tag serves integers and fractions: callers decode the value from its text, not from the node.
		node.Tag, node.Value = "!!float", v.String()
	case bool:
		node.Tag, node.Value = "!!bool", fmt.Sprint(v)
	default:
		node.Tag, node.Value = "!!null", "null"
	}
	return node, nil
}

// content reads the entries of a list or a map to its end; a map's keys and values alternate.
func (s *Stream) content(node *yamlv3.Node, depth int) error {
	for {
		token, err := s.in.Token()
		if token == json.Delim(']') || token == json.Delim('}') {
			return nil
		}
		child, err := s.node(token, err, depth+1)
		if err != nil {
			return err
		}
		node.Content = append(node.Content, child)
	}
}
