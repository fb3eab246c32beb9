//! The list of a cache's free blocks, from which a block can be taken wherever it stands.

use std::collections::VecDeque;

/// The free blocks, in order. Each knows its neighbors, so taking one out of the middle takes as
/// long as taking the first (vLLM `FreeKVCacheBlockQueue`).
///
/// It has those methods of a [`VecDeque`] that a pool of blocks needs, and
/// [`FreeBlocks::take_block`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeList {
    /// The block after each block. The last entry is the list's end, whose next block is the first.
    next: Vec<u32>,
    /// The block before each block. A block that isn't in the list is its own neighbor.
    previous: Vec<u32>,
    len: usize,
}

impl FreeList {
    /// Creates a list of blocks 0, 1, 2, ….
    pub fn new(num_blocks: usize) -> Self {
        let alone: Vec<u32> = (0..=num_blocks as u32).collect();
        let mut list = Self { next: alone.clone(), previous: alone, len: 0 };
        for block in 0..num_blocks as u32 {
            list.push_back(block);
        }
        list
    }

    /// Returns the number of blocks in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no blocks in the list.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the block is in the list.
    pub fn contains(&self, block: &u32) -> bool {
        *block < self.end() && self.next[*block as usize] != *block
    }

    /// Removes the block at the front.
    pub fn pop_front(&mut self) -> Option<u32> {
        self.remove_block(self.next[self.end() as usize])
    }

    /// Removes the block at the back.
    pub fn pop_back(&mut self) -> Option<u32> {
        self.remove_block(self.previous[self.end() as usize])
    }

    /// Adds a block in front of the others. Does nothing if it's in the list.
    ///
    /// # Panics
    /// If the block isn't one of those that [`FreeList::new`] created.
    pub fn push_front(&mut self, block: u32) {
        self.insert(block, self.end(), self.next[self.end() as usize]);
    }

    /// Adds a block after the others. Does nothing if it's in the list.
    ///
    /// # Panics
    /// If the block isn't one of those that [`FreeList::new`] created.
    pub fn push_back(&mut self, block: u32) {
        self.insert(block, self.previous[self.end() as usize], self.end());
    }

    /// Iterates over the blocks, from front to back.
    pub fn iter(&self) -> Iter<'_> {
        Iter { list: self, front: self.end(), back: self.end(), left: self.len }
    }

    /// Keeps the blocks for which `keep` is true. Goes through the whole list.
    pub fn retain(&mut self, mut keep: impl FnMut(&u32) -> bool) {
        let gone: Vec<u32> = self.iter().filter(|block| !keep(block)).copied().collect();
        for block in gone {
            self.remove_block(block);
        }
    }

    /// Removes the block at a place, counted from the front. Goes through the list up to it.
    pub fn remove(&mut self, index: usize) -> Option<u32> {
        let block = self.iter().nth(index).copied()?;
        self.remove_block(block)
    }

    /// The entry that stands for the end of the list.
    fn end(&self) -> u32 {
        self.next.len() as u32 - 1
    }

    fn insert(&mut self, block: u32, before: u32, after: u32) {
        assert!(block < self.end(), "the cache has no block {block}");
        if self.contains(&block) {
            return;
        }
        self.next[before as usize] = block;
        self.previous[block as usize] = before;
        self.next[block as usize] = after;
        self.previous[after as usize] = block;
        self.len += 1;
    }

    /// Joins a block's neighbors. None: it isn't in the list.
    fn remove_block(&mut self, block: u32) -> Option<u32> {
        if !self.contains(&block) {
            return None;
        }
        let (before, after) = (self.previous[block as usize], self.next[block as usize]);
        self.next[before as usize] = after;
        self.previous[after as usize] = before;
        self.next[block as usize] = block;
        self.previous[block as usize] = block;
        self.len -= 1;
        Some(block)
    }
}

/// The blocks of a [`FreeList`], in order.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    list: &'a FreeList,
    /// The blocks last returned from either end.
    front: u32,
    back: u32,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a u32;

    fn next(&mut self) -> Option<&'a u32> {
        self.left = self.left.checked_sub(1)?;
        let block = &self.list.next[self.front as usize];
        self.front = *block;
        Some(block)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let block = &self.list.previous[self.back as usize];
        self.back = *block;
        Some(block)
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// A list of free blocks, from which any of them can be taken.
pub trait FreeBlocks {
    /// Takes a block out of the list, wherever it stands. Does nothing if it isn't in the list.
    fn take_block(&mut self, block: u32);
}

impl FreeBlocks for FreeList {
    /// Changes the block and its two neighbors, however long the list is.
    fn take_block(&mut self, block: u32) {
        self.remove_block(block);
    }
}

/// A day 21 that keeps its free blocks in a `VecDeque` works, too.
impl FreeBlocks for VecDeque<u32> {
    /// Goes through the whole list.
    fn take_block(&mut self, block: u32) {
        self.retain(|free| *free != block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Following a link of any other block would panic.
    #[test]
    fn taking_a_block_reads_only_its_neighbors() {
        let mut list = FreeList::new(1000);
        for block in (0..=1000).filter(|block| !(499..=501).contains(block)) {
            list.next[block] = u32::MAX;
            list.previous[block] = u32::MAX;
        }
        list.take_block(500);
        assert_eq!((list.next[499], list.previous[501], list.len()), (501, 499, 999));
    }

    #[test]
    #[should_panic(expected = "the cache has no block 2")]
    fn a_block_that_the_cache_lacks_is_refused() {
        FreeList::new(2).push_back(2); // the entry that stands for the list's end
    }

    #[test]
    fn a_list_of_free_blocks_is_a_queue_that_any_block_can_leave() {
        let (mut list, mut queue) = (FreeList::new(6), VecDeque::from([0, 1, 2, 3, 4, 5]));
        let same = |list: &FreeList, queue: &VecDeque<u32>| {
            assert!(list.iter().eq(queue) && list.iter().rev().eq(queue.iter().rev()));
            assert_eq!((list.len(), list.is_empty()), (queue.len(), queue.is_empty()));
        };
        for block in [3, 0, 5] {
            list.take_block(block);
            queue.take_block(block);
            same(&list, &queue);
        }
        list.take_block(3); // it has left already
        assert!(!list.contains(&3) && list.contains(&4));
        list.push_back(3);
        list.push_front(5);
        list.push_back(5); // it's in the list already
        queue.push_back(3);
        queue.push_front(5);
        same(&list, &queue);
        assert_eq!((list.pop_front(), list.pop_back()), (queue.pop_front(), queue.pop_back()));
        assert_eq!(list.remove(1), queue.remove(1));
        list.retain(|block| *block != 1);
        queue.retain(|block| *block != 1);
        same(&list, &queue);
        while let Some(block) = list.pop_front() {
            assert_eq!(Some(block), queue.pop_front());
        }
        same(&list, &queue);
        assert_eq!((list.pop_back(), list.remove(0)), (None, None));
    }
}
