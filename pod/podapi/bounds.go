package podapi

import (
	"errors"
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

// The bounds of what is read at once. What people write is far within them, and
// reading what is within them takes little time and memory: an alias, a replica
// and a separator of documents are small in a file and may stand for much.
const (
	maxText      = 3 << 20  // bytes of a file
	maxExpanded  = 16 << 20 // bytes of all documents, each alias and each replica written out
	maxDocuments = 1000
	maxDepth     = 100 // of lists and maps within each other
	maxPods      = 1000
	maxClaims    = 1000
	maxFaults    = 100
	maxWords     = 1 << 10 // bytes of a fault's message, and of its field
	// nodeCost is what a value counts for beside its text, in bytes.
	nodeCost = 64
	// claimCost is what a claim counts for beside its text, in bytes.
	claimCost = 16 * nodeCost
)

var (
	errExpanded = fmt.Errorf("it has more than %d MiB of text with all aliases and replicas expanded", maxExpanded>>20)
	errDepth    = fmt.Errorf("lists and maps are nested more than %d deep", maxDepth)
	errSelf     = errors.New("an anchor contains itself")
)

// scales weigh the nodes of one document. Those of anchors are remembered, so
// that the work is that of the text and not of what it stands for.
type scales struct {
	anchors map[*yamlv3.Node]weight
	// at is the line at which weigh has failed.
	at int
	// misplaced are the keys of maps that are there twice, and merges that would
	// win over the keys before them.
	misplaced []*yamlv3.Node
}

// weight is the size of a value, every alias in it written out, and how deep its
// lists and maps are within each other. That of an anchor that is not complete is
// zero.
type weight struct{ size, depth int }

// weigh fails where node is too large or too deep, or contains itself.
func (s *scales) weigh(node *yamlv3.Node) (weight, error) {
	if node.Kind == yamlv3.AliasNode {
		// What it refers to stands before it, and has been weighed.
		whole := s.anchors[node.Alias]
		if whole.size == 0 {
			s.at = node.Line
			return weight{}, errSelf
		}
		return whole, nil
	}
	s.keys(node)
	whole := weight{size: nodeCost + len(node.Value)}
	for _, child := range node.Content {
		part, err := s.weigh(child)
		if err != nil {
			return weight{}, err
		}
		whole = weight{size: whole.size + part.size, depth: max(whole.depth, part.depth+1)}
		// Checked at each step, so that no sum overflows.
		if whole.size > maxExpanded {
			s.at = child.Line
			return weight{}, errExpanded
		}
		if whole.depth > maxDepth {
			s.at = child.Line
			return weight{}, errDepth
		}
	}
	if node.Anchor != "" {
		s.anchors[node] = whole
	}
	return whole, nil
}

// mergeKey is the key whose value's entries a map takes for its own.
const mergeKey = "<<"

// keys looks at the keys of a map.
func (s *scales) keys(node *yamlv3.Node) {
	if node.Kind != yamlv3.MappingNode {
		return
	}
	seen := make(map[string]bool, len(node.Content)/2)
	for i := 0; i < len(node.Content); i += 2 {
		key := unalias(node.Content[i])
		if (seen[key.Value] || key.Value == mergeKey && i > 0) && len(s.misplaced) <= maxFaults {
			s.misplaced = append(s.misplaced, node.Content[i])
		}
		seen[key.Value] = true
	}
}

// weighed tells whether the document may be read; what it stands for counts
// among all that is read.
func (d *decoder) weighed(root *yamlv3.Node) bool {
	s := &scales{anchors: map[*yamlv3.Node]weight{}}
	whole, err := s.weigh(root)
	if err != nil {
		d.add(s.at, "", ErrSyntax, err.Error())
		return false
	}
	for _, key := range s.misplaced {
		message := fmt.Sprintf("key %q is already set in this map", cut(unalias(key).Value))
		if unalias(key).Value == mergeKey {
			message = "a merge must be the first in its map"
		}
		d.add(key.Line, "", ErrSyntax, message)
	}
	return d.count(whole.size) && len(s.misplaced) == 0
}

// count takes size bytes from what may be read at once, and tells whether they
// were left.
func (d *decoder) count(size int) bool {
	if d.expanded > maxExpanded {
		return false // and said so
	}
	if d.expanded += size; d.expanded > maxExpanded {
		d.add(0, "", ErrSyntax, errExpanded.Error())
		return false
	}
	return true
}

// cut shortens a text for a message.
func cut(text string) string {
	if len(text) <= maxWords {
		return text
	}
	return text[:maxWords] + "…"
}
